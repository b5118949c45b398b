"""`ops bench growth`: the lists that it reads."""

from urllib.parse import parse_qs, urlsplit

from api.routes import all_operations
from loadtests.bench import console_lists

OPERATIONS = {one.path: one for one in all_operations() if one.method == "GET"}


def test_each_list_is_an_operation_that_has_the_parameters() -> None:
    for request in console_lists.requests("ann@one.test"):
        path, query = urlsplit(request).path, parse_qs(urlsplit(request).query)
        fields = getattr(OPERATIONS[path].query, "__struct_encode_fields__", ())
        assert set(query) <= set(fields), request


def test_each_filter_of_messages_and_suppressions_is_read() -> None:
    read = list(console_lists.requests("ann@one.test"))
    for path in ("/v1/messages", "/v1/suppressions"):
        used = {name for one in read if urlsplit(one).path == path for name in parse_qs(urlsplit(one).query)}
        fields = getattr(OPERATIONS[path].query, "__struct_encode_fields__", ())
        assert set(fields) - used <= {"limit", "before", "from", "until", "broadcast"}

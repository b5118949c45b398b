"""Where a domain's mail is queued: the same place for ever, and spread evenly."""

import subprocess
import sys
from collections import Counter

from engine.base.ids import uuid7
from engine.delivery.partition import hint_stream, shard_of


def test_mapping_is_the_same_in_every_process_and_version() -> None:
    known = {"gmail.com": 72, "outlook.com": 192, "example.org": 181}
    assert {domain: shard_of(domain, 256) for domain in known} == known
    code = "from engine.delivery.partition import shard_of; print(shard_of('gmail.com', 256))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(out.stdout) == known["gmail.com"]


def test_case_does_not_matter() -> None:
    assert shard_of("GMail.com", 256) == shard_of("gmail.com", 256)


def test_domains_spread_evenly() -> None:
    counts = Counter(shard_of(f"d{n}.test", 256) for n in range(25_600))
    assert len(counts) == 256
    assert max(counts.values()) < 150


def test_hot_domain_is_split_over_distinct_shards_by_message() -> None:
    ids = [uuid7() for _ in range(4_000)]
    split = {"gmail.com": 8}
    counts = Counter(shard_of("gmail.com", 256, split=split, message_id=id_) for id_ in ids)
    assert len(counts) == 8
    assert shard_of("gmail.com", 256) in counts
    assert min(counts.values()) > 350
    for id_ in ids[:50]:
        again = shard_of("gmail.com", 256, split=split, message_id=id_)
        assert again == shard_of("gmail.com", 256, split=split, message_id=id_)


def test_other_domains_ignore_the_split() -> None:
    assert shard_of("b.test", 256, split={"gmail.com": 8}, message_id=uuid7()) == shard_of("b.test", 256)
    assert shard_of("b.test", 1, split={"b.test": 8}, message_id=uuid7()) == 0


def test_stream_carries_the_shards_hash_tag() -> None:
    assert hint_stream(17) == "wb:{s17}:hints"

"""Deliveries move down the stages of mta/outbound: no stage is called back from below or changed from outside.

Three rules, read from the syntax trees of the folder:
1. No constructor parameter and no attribute takes a function: a stage gets what it needs as objects that it calls
   downward. Time sources, and the exceptions in `FUNCTIONS`, may be functions.
2. A stage imports only stages below it, and the modules that serve the stages import none of them.
3. No code assigns to an attribute of an object that it did not make itself. The exceptions are the delivery that
   stages hand on, and records that are private to their module.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from mta.outbound.delivery import ActiveDelivery
from mta.outbound.sites.remote_hosts import HostHealth
from mta.outbound.sites.slots import SlotClaim

FOLDER = Path(__file__).resolve().parents[2] / "mta" / "outbound"
# From the top down:
STAGES = ("pipeline", "fetch", "fetch_broadcasts", "intake", "route", "schedule", "deliver", "complete")
TIME_SOURCES = frozenset({"now", "clock"})
FUNCTIONS = {
    ("StsFetcher", "may_dial"): "a pure judgement of addresses, which settings choose",
}
DATA = frozenset({*ActiveDelivery.__slots__, "waiting"})  # `waiting`: of a queue row
RECORDS = {  # of the module alone: records that it keeps, and a TLS context that it configures
    "sites.remote_hosts": frozenset(HostHealth.__slots__),
    "sites.slots": frozenset(SlotClaim.__slots__),
    "tls.report_counts": frozenset({"sessions"}),
    "tls.report_posting": frozenset({"check_hostname", "verify_mode"}),
}
FUNCTION_TYPES = frozenset({"Callable", "Coroutine", "Awaitable"})


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Name below mta.outbound, and syntax tree."""
    for path in sorted(FOLDER.rglob("*.py")):
        yield ".".join(path.relative_to(FOLDER).with_suffix("").parts), ast.parse(path.read_text())


def classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def takes_function(annotation: ast.expr | None) -> bool:
    if annotation is None:
        return False
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    return any(isinstance(node, ast.Name) and node.id in FUNCTION_TYPES for node in ast.walk(annotation))


def parameters_with_functions(each: ast.ClassDef) -> Iterator[str]:
    for node in each.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if takes_function(one.annotation):
                    yield one.arg


def attributes_with_functions(each: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(each):
        if isinstance(node, ast.AnnAssign) and takes_function(node.annotation):
            if isinstance(node.target, ast.Attribute):
                yield node.target.attr
            elif node in each.body and isinstance(node.target, ast.Name):
                yield node.target.id


def test_no_class_is_given_a_function_to_call_back() -> None:
    found = [
        f"{name}: {each.name}.{one}"
        for name, tree in modules()
        for each in classes(tree)
        for one in (*parameters_with_functions(each), *attributes_with_functions(each))
        if one not in TIME_SOURCES and (each.name, one) not in FUNCTIONS
    ]
    assert not found


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "mta.outbound":
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("mta.outbound."):
            yield node.module.removeprefix("mta.outbound.")


def test_a_stage_imports_only_stages_below_it() -> None:
    found = []
    for name, tree in modules():
        below = STAGES[STAGES.index(name) + 1 :] if name in STAGES else ()
        found += [f"{name} imports {one}" for one in imports(tree) if one in STAGES and one not in below]
    assert not found


def made_here(function: ast.AST) -> set[str]:
    """Local names that are bound to an object which this function has constructed."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and constructs(node.value):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def constructs(call: ast.Call) -> bool:
    called = ast.unparse(call.func).rpartition(".")[2]
    return called == "cls" or called.lstrip("_")[:1].isupper()


def assigned(function: ast.AST) -> Iterator[ast.Attribute]:
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            for target in targets:
                for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(part, ast.Attribute):
                        yield part


def is_own(target: ast.Attribute, own: set[str]) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id in own


def test_no_code_sets_an_attribute_of_an_object_that_it_did_not_make() -> None:
    found = [
        f"{name}:{target.lineno} {ast.unparse(target)}"
        for name, tree in modules()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for target in assigned(function)
        if not is_own(target, {"self", "cls", *made_here(function)})
        and target.attr not in DATA | RECORDS.get(name, frozenset())
    ]
    assert not found

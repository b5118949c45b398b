"""Row sets: parameters of wide statements get their positions, types and arrays from one declaration."""

from datetime import datetime

import pytest
from msgspec import Struct

from engine.store.row_sets import Column, RowSet, WideStatement


class Pet(Struct):
    name: str
    age: int
    born: datetime | None = None
    owner: str = "Ann"


PETS = RowSet(
    "pet", Pet, Column("name"), Column("age", "smallint"), Column("born"), Column("owner", repeats=True),
    Column("letters", "integer", lambda pet: len(pet.name)),
)  # fmt: skip


def test_a_statement_numbers_its_parameters_in_the_order_of_their_first_use() -> None:
    plain = RowSet("plain", Pet, Column("name"), Column("age", "smallint"))
    statement = WideStatement(
        "SELECT :low::int FROM :plain JOIN :plain ON true WHERE x BETWEEN :low AND :high", [plain], {}
    )

    rows = "unnest($2::text[], $3::smallint[]) AS plain (name, age)"
    assert statement.sql == f"SELECT $1::int FROM {rows} JOIN {rows} ON true WHERE x BETWEEN $1 AND $4"
    assert statement.arguments([plain.of([Pet("Rex", 3)])], {"high": 9, "low": 1}) == [1, ["Rex"], [3], 9]


def test_a_column_is_an_attribute_or_computed_and_its_type_follows_from_the_annotation() -> None:
    assert PETS.types == ("text", "smallint", "timestamptz", "text", "integer")
    assert PETS.of([Pet("Rex", 3), Pet("Tom", 3, owner="Bob")]).columns == (
        ["Rex", "Tom"], [3, 3], [], ["Ann", "Bob"], [3, 3],
    )  # fmt: skip


def test_a_value_that_repeats_throughout_and_columns_of_nulls_are_not_sent() -> None:
    columns = dict(zip(PETS.names, PETS.of([Pet("Rex", 3), Pet("Tom", 4)]).columns, strict=True))

    assert (columns["owner"], columns["born"]) == (["Ann"], [])
    assert "coalesce(r.owner, ($4::text[])[1]) AS owner" in PETS.relation(1)
    assert PETS.of([]).columns == ([], [], [], [], [])


def test_fragments_and_names_are_written_out() -> None:
    statement = WideStatement("INSERT INTO pets (:pet.names) :tail", [PETS], {"tail": "SELECT pet.* FROM :pet"})

    assert statement.sql.startswith("INSERT INTO pets (name, age, born, owner, letters) SELECT pet.* FROM (SELECT ")


def test_the_array_of_one_column_and_the_types_of_all_parameters_follow_from_the_set() -> None:
    statement = WideStatement("(:pet.age)[:place] + :pet.names", [PETS], {}, {"place": "integer"})

    assert statement.sql == "($2)[$6] + name, age, born, owner, letters"
    assert statement.types == ["text[]", "smallint[]", "timestamptz[]", "text[]", "integer[]", "integer"]
    with pytest.raises(ValueError, match="has no column size"):
        WideStatement(":pet.size", [PETS], {})


def test_wrong_declarations_and_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="column age: give its PostgreSQL type"):
        RowSet("pet", Pet, Column("age"))
    with pytest.raises(ValueError, match="one column must not repeat"):
        RowSet("pet", Pet, Column("name", repeats=True))
    with pytest.raises(ValueError, match="uses no row set named pet"):
        WideStatement("SELECT 1", [PETS], {})
    statement = WideStatement("SELECT :low FROM :pet", [PETS], {})
    with pytest.raises(TypeError, match="wanted"):
        statement.arguments([PETS.of([])], {})
    with pytest.raises(TypeError, match="wanted"):
        statement.arguments([PETS.of([])], {"low": 1, "high": 2})

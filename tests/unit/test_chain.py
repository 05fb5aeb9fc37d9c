"""The judge of the chain, over rows made by hand."""

import pytest

from bedplate.decide.chain import NOTED, Damage, Row, Unreadable, check_chain, judge_in_place
from bedplate.model.canonical import canonical, sha256
from bedplate.model.event import GENESIS, Draft, Event, body_bytes, check_draft, parse_body, seal, subjects_bytes

A = "sha256:" + "a" * 64


def row(event: Event, body: bytes) -> Row:
    return Row(
        event.id, event.at.encode(), event.actor.encode(), event.kind.encode(), subjects_bytes(event.subjects),
        event.environment.encode() if event.environment else None, body, event.body_sha256.encode(),
        event.previous.encode(), event.sha256.encode(),
    )  # fmt: skip


def chain(count: int, *, after: Event | None = None, word: str = "w") -> list[Row]:
    """Rows of a sound chain: behind an event, or from the beginning."""
    rows = []
    previous, first = (after.sha256, after.id) if after else (GENESIS, 0)
    for number in range(first + 1, first + 1 + count):
        body = body_bytes({"number": number, "word": word})
        draft = Draft("step.ended", (f"node:n{number}",), {}, A)
        event = seal(
            draft, body, id=number, at=f"2026-11-02T09:14:{number:02}.000000Z", actor="me@ctl", previous=previous
        )
        rows.append(row(event, body))
        previous = event.sha256
    return rows


def noted(head: tuple[int, str] | None) -> list[tuple[int, str, str]]:
    return [] if head is None else [(*head, NOTED)]


def named(rows: list[Row | Unreadable] | list[Row], expect_head: tuple[int, str] | None = None) -> list[int | None]:
    return [damage.event_id for damage in check_chain(rows, heads=noted(expect_head))]


def head(rows: list[Row]) -> tuple[int, str]:
    return rows[-1].id, (rows[-1].sha256 or b"").decode()


def test_the_hash_of_an_event_is_that_of_the_documented_form() -> None:
    (only,) = chain(1)
    assert only.body == b'{"number":1,"word":"w"}'
    document = {
        "schema": 1, "id": 1, "at": "2026-11-02T09:14:01.000000Z", "actor": "me@ctl", "kind": "step.ended",
        "subjects": ["node:n1"], "environment": A, "body_sha256": sha256(only.body), "previous": "sha256:" + "0" * 64,
    }  # fmt: skip
    assert only.sha256 == sha256(canonical(document)).encode()


def test_a_sound_chain_has_no_damage() -> None:
    assert named([]) == []
    assert named(chain(1)) == []
    assert named(chain(9), head(chain(9))) == []
    assert named(chain(9), (5, head(chain(5))[1])) == []
    assert named(chain(9), (0, GENESIS)) == []


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("body", b'{"number":3,"word":"x"}'),
        ("body", b'{"number": 3,"word":"w"}'),
        ("body", b"\xff"),
        ("body", b"{"),
        ("body", b"[]"),
        ("body", None),
        ("at", b"2026-11-02T09:14:04.000000Z"),
        ("at", None),
        ("actor", b"you@ctl"),
        ("actor", b"\xff"),
        ("kind", b"step.begun"),
        ("subjects", b'["node:n4"]'),
        ("subjects", b"[3]"),
        ("environment", None),
        ("environment", b"sha256:" + b"b" * 64),
        ("environment", b"A"),
        ("body_sha256", b"sha256:" + b"b" * 64),
        ("body_sha256", b"sha256:" + b"B" * 64),
        ("previous", b"sha256:" + b"b" * 64),
        ("sha256", b"sha256:" + b"b" * 64),
        ("sha256", None),
    ],
)  # fmt: skip
def test_an_edited_column_names_its_event_and_no_other(column: str, value: bytes | None) -> None:
    rows = chain(5)
    rows[2] = rows[2]._replace(**{column: value})  # type: ignore[arg-type]
    assert set(named(rows)) == {3}
    rows = chain(3)
    rows[2] = rows[2]._replace(**{column: value})  # type: ignore[arg-type]
    assert set(named(rows)) == {3}, "the last event is judged like the others"


def test_a_deleted_event_is_named() -> None:
    rows = chain(5)
    del rows[2]
    assert list(check_chain(rows)) == [Damage(3, "is missing")]
    rows = chain(9)
    del rows[0], rows[2:5]
    assert [str(damage) for damage in check_chain(rows)] == [
        "event 1: is missing",
        "event 4: this and all up to event 6 are missing (3 events)",
    ]


def test_a_deleted_event_whose_successors_were_renumbered_is_seen() -> None:
    rows = chain(5)
    moved = [*rows[:2], *(row._replace(id=row.id - 1) for row in rows[3:])]
    assert set(named(moved)) == {3, 4}


def test_exchanged_events_are_both_named() -> None:
    rows = chain(5)
    exchanged = [rows[0], rows[2]._replace(id=2), rows[1]._replace(id=3), *rows[3:]]
    assert {2, 3} <= set(named(exchanged))
    assert 5 not in named(exchanged)


def test_a_duplicate_id_is_named() -> None:
    rows = chain(4)
    assert set(named([*rows[:2], rows[1], *rows[2:]])) == {2}
    assert set(named([rows[0], rows[2], rows[1], rows[3]])) == {2}, "out of order"


def test_an_event_replaced_with_its_hashes_redone_breaks_the_link_to_its_successor() -> None:
    rows, other = chain(5), chain(5, word="forged")
    forged = seal(
        Draft("step.ended", ("node:n3",), {}, A), other[2].body or b"", id=3, at="2026-11-02T09:14:03.000000Z",
        actor="me@ctl", previous=(rows[1].sha256 or b"").decode(),
    )  # fmt: skip
    rows[2] = row(forged, other[2].body or b"")
    (damage,) = check_chain(rows)
    assert damage.event_id == 4
    assert "event 3 is" in damage.what
    assert "one was replaced" in damage.what


def test_two_chains_grown_into_one_are_seen_at_the_joint() -> None:
    assert named([*chain(3), *chain(6, word="other")[3:]]) == [4]


def test_a_cut_tail_is_seen_only_against_a_noted_head() -> None:
    rows = chain(9)
    assert named(rows[:6]) == [], "an unkeyed chain cannot see it"
    assert [str(damage) for damage in check_chain(rows[:6], heads=noted(head(rows)))] == [
        "event 7: this and all up to event 9 are missing (3 events): the tail was cut off behind event 6"
    ]
    assert named([], head(rows)) == [1]


def test_a_history_rewritten_to_the_end_is_seen_only_against_a_noted_head() -> None:
    assert named(chain(9, word="forged")) == []
    assert named(chain(9, word="forged"), head(chain(9))) == [9]
    assert named(chain(12, word="forged"), head(chain(9))) == [9]


def test_a_first_event_with_a_predecessor_is_named() -> None:
    rows = chain(2)
    late = chain(
        1, after=seal(Draft("a", (), {}), b"{}", id=0, at="2026-11-02T09:14:00.000000Z", actor="x", previous=A)
    )
    assert named([late[0], rows[1]])[0] == 1


def test_an_id_below_one_is_named() -> None:
    assert named([chain(1)[0]._replace(id=-3), *chain(4)[1:]]) == [-3, -3, 1]


def test_judging_goes_on_behind_events_that_cannot_be_read() -> None:
    rows = chain(9)
    rows[7] = rows[7]._replace(actor=b"you")
    found = [str(d).split(":")[0] for d in check_chain([*rows[:2], Unreadable(3, 5, "malformed"), *rows[5:]])]
    assert found == ["event 3", "event 8"]
    (damage,) = check_chain([*rows[:2], Unreadable(3, 3, "malformed")])
    assert str(damage) == "event 3: cannot be read: malformed"


def test_several_damages_are_all_named() -> None:
    rows = chain(12)
    rows[1] = rows[1]._replace(body=b"{}")
    rows[4] = rows[4]._replace(actor=b"you")
    del rows[8]
    assert set(named(rows)) == {2, 5, 9}


def test_one_event_is_judged_with_its_neighbours() -> None:
    rows, other = chain(3), chain(3, word="other")
    assert judge_in_place(rows[0], None, rows[1]).wrong == ()
    assert judge_in_place(rows[1], rows[0], rows[2]).wrong == ()
    assert judge_in_place(rows[2], rows[1], None).wrong == ()
    assert "predecessor" in judge_in_place(rows[2], None, None).wrong[0]
    assert "predecessor" in judge_in_place(rows[2], other[1], None).wrong[0]
    assert "event 3 names" in judge_in_place(other[1], other[0], rows[2]).wrong[0]
    edited = rows[2]._replace(previous=other[1].sha256)
    assert judge_in_place(rows[1], rows[0], edited).wrong == (), "the neighbour's own damage is not its"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"a": 1.5}, "body.a"),
        ({"a": [0, {"b": float("nan")}]}, "body.a[1].b"),
        ({"a": float("inf")}, "body.a"),
        ({1: "a"}, "body: the key 1"),
        ({"a": {None: 1}}, "body.a: the key None"),
        ({"a": 2**53}, "body.a"),
        ({"a": -(2**53)}, "body.a"),
        ({"a": "\ud800"}, "body.a"),
        ({"\udfff": 1}, "body"),
        ({"a": b"bytes"}, "body.a"),
        ({"a": {1, 2}}, "body.a"),
        ([], "body"),
        (None, "body"),
        ("text", "body"),
    ],
)  # fmt: skip
def test_a_body_without_one_exact_form_is_refused_with_its_place(body: object, place: str) -> None:
    with pytest.raises(ValueError, match=place.replace("[", r"\[")):
        body_bytes(body)  # type: ignore[arg-type]


def test_a_body_is_at_most_64_levels_deep() -> None:
    body: dict[str, object] = {}
    for _ in range(63):
        body = {"a": body}
    assert parse_body(body_bytes(body)) == body
    with pytest.raises(ValueError, match="64 levels"):
        body_bytes({"a": body})
    with pytest.raises(ValueError, match=r"levels deep|canonical"):
        parse_body(b'{"a":' * 100_000 + b"0" + b"}" * 100_000)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"a":1.0}', "no integer"),
        (b'{"a":1e3}', "no integer"),
        (b'{"a":NaN}', "no integer"),
        (b'{"a":9007199254740992}', "2\\^53"),
        (b'{"a":' + b"9" * 5000 + b"}", "."),
        (b'{"a":-0}', "canonical"),
        (b'{"b":1,"a":2}', "canonical"),
        (b'{"a":1,"a":1}', "canonical"),
        (b'{"a":1} ', "canonical"),
        (b'{"a":"\\u0041"}', "canonical"),
        (b'{"a":"\\ud800"}', "."),
        (b'{"a":"\xff"}', "UTF-8"),
        ('{"\U0001f600":1,"\uffee":2}'.encode()[::-1], "."),
        (b"7", "object"),
        (b"", "JSON"),
    ],
)
def test_stored_bytes_that_are_not_canonical_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_body(data)


def test_keys_outside_ascii_sort_by_utf_16_as_rfc_8785_says() -> None:
    body = {"\uffee": 1, "\U0001f600": 2, "a": 3}
    assert body_bytes(body) == canonical(body) == '{"a":3,"\U0001f600":2,"\uffee":1}'.encode()
    assert parse_body(body_bytes(body)) == body


@pytest.mark.parametrize(
    ("draft", "says"),
    [
        (Draft("", (), {}), "kind"),
        (Draft("Rollout.Started", (), {}), "kind"),
        (Draft("rollout started", (), {}), "kind"),
        (Draft("a", ("n1",), {}), "subjects"),
        (Draft("a", ("node:",), {}), "subjects"),
        (Draft("a", ("node:a\nb",), {}), "subjects"),
        (Draft("a", "node:n1", {}), "one string"),  # type: ignore[arg-type]
        (Draft("a", (3,), {}), "subjects"),  # type: ignore[arg-type]
        (Draft("a", (), {}, "A"), "identity"),
        (Draft("a", (), {}, "sha256:" + "A" * 64), "identity"),
    ],
)
def test_a_malformed_draft_is_refused(draft: Draft, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_draft(draft)

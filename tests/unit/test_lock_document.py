"""What a lock file may and may not say."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.decide.lockdoc import LockDocument, layers_of, lock_text, parse_lock
from bedplate.model.faults import BadInput, Fault
from bedplate.model.layers import Layer
from unit.lock_sample import digest, document, parsed, set_at

DRIVER = "packages/gpu/nvidia-driver-570-open"
DIGESTS = [
    "spec_sha256", "archive/key_sha256", "archive/inrelease_sha256", f"{DRIVER}/sha256", "image/manifest_digest",
    "image/config_digest", "image/base_digest", "image/squashfs_sha256", "image/definition_sha256",
    "image/build_record_sha256", "config/templates/roles~base~templates~nccl.conf.j2",
    "config/files_sha256/roles~base~files.yml",
]  # fmt: skip


def change(path: str, value: Any) -> dict[str, Any]:
    data = document()
    *parents, last = path.split("/")
    here = data
    for part in parents:
        here = here[part]
    last = last.replace("~", "/")
    assert last in here
    here[last] = value
    return data


def faults(text: str, file: str = "environments/A.lock.json") -> list[Fault]:
    with pytest.raises(BadInput) as caught:
        parse_lock(text, file)
    assert caught.value.faults
    return caught.value.faults


def test_the_text_of_a_document_reads_back_as_the_document() -> None:
    lock = parse_lock(lock_text(document()), "environments/A.lock.json")
    assert lock.document == document()
    assert lock.name == "A"


def test_the_text_is_indented_json_with_sorted_keys_and_a_newline() -> None:
    text = lock_text(document())
    assert text == json.dumps(document(), indent=2, sort_keys=True) + "\n"


@given(st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_the_identity_does_not_depend_on_the_order_of_keys_or_on_space(random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = list(value.items())
            random.shuffle(items)
            return {key: shuffled(item) for key, item in items}
        return value

    text = json.dumps(shuffled(document()), indent=random.choice([None, 1, 7]))
    assert parse_lock(text, "lock").identity == parsed().identity


@pytest.mark.parametrize("path", DIGESTS)
def test_another_digest_is_another_identity(path: str) -> None:
    if path == "image/manifest_digest":
        data = change(path, digest("e"))
        data["image"]["reference"] = f"registry.lab:5443/lab/small@{digest('e')}"
    else:
        data = change(path, digest("e"))
    assert parsed(data).identity != parsed().identity


@pytest.mark.parametrize("path", DIGESTS)
@given(
    value=st.one_of(
        st.none(), st.integers(), st.booleans(), st.text(max_size=80), st.lists(st.text(), max_size=2),
        st.from_regex(r"\Asha(256|1|512):[0-9a-fA-F]{0,63}\Z"), st.just("a" * 64), st.just(digest("a").upper()),
        st.just(digest("a") + "\n"), st.just(digest("a")[:-1]), st.just(" " + digest("a")), st.just(digest("g")),
    )
)  # fmt: skip
@settings(max_examples=8, deadline=None)
def test_what_is_no_digest_never_passes_as_one(path: str, value: Any) -> None:
    place = path.replace("~", "/").rpartition("/")[2]
    assert any(place in fault.found for fault in faults(lock_text_raw(change(path, value))))


def lock_text_raw(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, sort_keys=True)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, item in items for p in paths(item, (*path, key)))]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_document_with_anything_in_it_is_a_lock_or_bad_input(data: st.DataObject) -> None:
    changed = document()
    path = data.draw(st.sampled_from(paths(changed)[1:]))
    here: Any = changed
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = data.draw(json_values)
    read_back(json.dumps(changed))


@given(st.text() | json_values.map(json.dumps))
@settings(max_examples=60, deadline=None)
def test_any_text_is_a_lock_or_bad_input(text: str) -> None:
    read_back(text)


@given(at=st.integers(0, 4000), byte=st.characters(max_codepoint=126))
@settings(max_examples=60, deadline=None)
def test_a_file_with_one_character_changed_is_the_same_lock_another_one_or_bad_input(at: int, byte: str) -> None:
    text = lock_text(document())
    read_back(text[:at] + byte + text[at + 1 :])


def read_back(text: str) -> LockDocument | None:
    """Either bad input with faults, or a lock that reads back as itself and has a digest wherever one belongs."""
    try:
        lock = parse_lock(text, "lock")
    except BadInput:
        return None
    again = parse_lock(lock_text(lock.document), "lock")
    assert (again.document, again.identity) == (lock.document, lock.identity)
    packages = [package for kind in lock.kinds for package in lock.packages(kind).values()]
    digests = [lock.identity, lock.spec_sha256, *(p.sha256 for p in packages), *lock.templates.values()]
    assert all(len(one) == 71 and one.startswith("sha256:") for one in digests)
    return lock


CASES = [
    ("schema", 2, "schema: "),
    ("environment", "../A", "environment: no name"),
    ("environment", "", "environment: no name"),
    ("kinds", {}, "kinds: "),
    ("archive/suite", "latest", "archive.suite: names no bytes"),
    ("image/reference", "registry.lab/small:latest", "image.reference: names no bytes"),
    ("config/values/nccl_debug", "{{ lookup('pipe', 'id') }}", "config.values.nccl_debug: has a Jinja delimiter"),
    ("config/values/nccl_debug", "{% if x %}", "Jinja delimiter"),
    ("config/values/nccl_debug", "{# x #}", "Jinja delimiter"),
    ("config/values/nccl_debug", "CHANGEME", "placeholder"),
    ("config/values/nccl_debug", "<level>", "placeholder"),
    ("config/values/nccl_debug", 1, "config.values.nccl_debug: "),
    ("config/values/nccl_debug", None, "config.values.nccl_debug: "),
    (f"{DRIVER}/version", "570.133.20 ", "no Debian version"),
    (f"{DRIVER}/version", "", "no Debian version"),
    (f"{DRIVER}/size", -1, "size: "),
    (f"{DRIVER}/size", True, "size: "),
    (f"{DRIVER}/size", "1000", "size: "),
    (f"{DRIVER}/size", 2**53, "size: "),
    (f"{DRIVER}/filename", "/etc/passwd", "no plain relative path"),
    (f"{DRIVER}/filename", "pool/../../x", "no plain relative path"),
    (f"{DRIVER}/architecture", "arm64", "is of arm64, the kind is amd64"),
    (f"{DRIVER}/layer", "drivers", "layer: "),
    (f"{DRIVER}/layer", "launch", "asked for by layer launch, which is unmanaged"),
    (f"{DRIVER}/asked", "yes", "asked: "),
    ("packages", {}, "packages: are of [], the lock is for ['gpu']"),
    ("image", None, "image: must be null exactly if"),
    ("image/reference", f"registry.lab/small@{digest('0')}", "image.reference: does not end with"),
    ("layers/os", {"distribution": "debian"}, "layers.os: has ['distribution']"),
    ("layers/driver", {"unmanaged": ""}, "layers.driver.unmanaged: "),
    ("layers/driver", {"unmanaged": None}, "layers.driver.unmanaged: "),
    ("layers/driver", {"definition": "x"}, "layers.driver: has ['definition']"),
    ("layers/config", {"unmanaged": "no"}, "config: has entries"),
    ("layers/hardware", {"models": []}, "layers.hardware.models: "),
]


@pytest.mark.parametrize(("path", "value", "said"), CASES)
def test_a_wrong_value_is_named_with_its_place(path: str, value: Any, said: str) -> None:
    found = faults(lock_text_raw(set_at(document(), path, value)))
    assert any(said in fault.found for fault in found), found
    assert all(fault.line for fault in found)


@pytest.mark.parametrize("key", sorted(document()))
def test_every_section_must_be_there(key: str) -> None:
    assert any(key in fault.found for fault in faults(lock_text_raw(set_at(document(), key, ...))))


@pytest.mark.parametrize("layer", list(Layer))
def test_every_layer_must_be_there(layer: Layer) -> None:
    found = faults(lock_text_raw(set_at(document(), f"layers/{layer}", ...)))
    assert any(layer in fault.found for fault in found)


@pytest.mark.parametrize("path", ["extra", "archive/extra", f"{DRIVER}/extra", "image/extra", "layers/extra"])
def test_an_unknown_key_is_refused(path: str) -> None:
    assert any("extra" in fault.found for fault in faults(lock_text_raw(set_at(document(), path, {}))))


def test_every_fault_is_told_at_once_with_its_line() -> None:
    data = document()
    for path, value in (("spec_sha256", "x"), ("archive/suite", "latest"), (f"{DRIVER}/size", 1.5)):
        data = set_at(data, path, value)
    data[next(iter(data))] = 1
    text = lock_text_raw(set_at(data, f"{DRIVER}/size", -1))
    found = faults(text)
    assert len(found) == 3
    lines = text.splitlines()
    for fault in found:
        assert fault.line is not None
        assert f'"{fault.found.partition(":")[0].rpartition(".")[2]}"' in lines[fault.line - 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON"), ("{", "no JSON"), ("[]", "a JSON object, found list"), ("null", "found NoneType"),
        ('{"schema": 1.0}', "whole numbers"), ('{"schema": NaN}', "whole numbers"),
        ('{"a": 1, "a": 2}', "stands twice"),
        ("[" * 100_000, "no JSON"), ('{"schema": ' + "9" * 5000 + "}", "no JSON"),
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_said_to_be_none(text: str, said: str) -> None:
    assert any(said in fault.found for fault in faults(text))


def test_a_lock_copied_to_another_name_is_refused() -> None:
    text = lock_text(document())
    assert any("is named B.lock.json" in fault.found for fault in faults(text, "site/environments/B.lock.json"))


def test_prose_may_say_latest() -> None:
    assert parsed(set_at(document(), "layers/launch/unmanaged", "the latest launcher of each user"))


def test_the_slice_of_a_kind_has_what_its_roles_need_and_no_other_kind() -> None:
    data = document()
    data["kinds"]["cpu"] = {"model": "lab-cpu", "architecture": "arm64"}
    data["packages"]["cpu"] = {}
    part = parsed(data).slice("gpu")
    assert sorted(part["packages"]) == ["libnuma1", "nvidia-driver-570-open", "nvidia-fabricmanager-570"]
    assert (part["kind"], part["model"], part["architecture"]) == ("gpu", "lab-gpu8", "amd64")
    assert part["identity"] == parsed(data).identity
    assert "lab-cpu" not in json.dumps(part)


def test_a_change_of_a_slice_does_not_reach_the_lock() -> None:
    lock = parsed()
    lock.slice("gpu")["packages"].clear()
    assert lock.packages("gpu")
    assert lock.document == document()


def test_a_kind_that_the_lock_is_not_for_is_refused() -> None:
    with pytest.raises(BadInput, match="is for gpu: not for kind controller"):
        parsed().packages("controller")


def test_templates_are_every_file_of_the_roles() -> None:
    assert parsed().templates == {
        "roles/base/templates/nccl.conf.j2": digest("c"), "roles/base/files.yml": digest("d"),
    }  # fmt: skip


def test_a_package_is_of_the_layer_that_asks_or_else_of_the_first_that_needs_it() -> None:
    asked = {"driver": Layer.DRIVER, "fabric": Layer.FABRIC, "numactl": Layer.OS, "top": Layer.OS}
    needs = {
        "driver": ["utils", "libc6"], "utils": ["driver", "libx"], "numactl": ["libc6"], "fabric": ["libx", "libfab"],
        "top": ["fabric"],
    }  # fmt: skip
    assert layers_of(asked, needs) == asked | {
        "utils": Layer.DRIVER, "libx": Layer.DRIVER, "libc6": Layer.OS, "libfab": Layer.FABRIC,
    }  # fmt: skip

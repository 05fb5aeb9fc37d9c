"""No answer that is empty, cut, garbled or of another locale passes: over every probe, every parser, every check."""

import string
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bedplate_agent.check import Check, evaluate
from bedplate_agent.facts import Facts, Unreadable, understood
from bedplate_agent.parse import PARSERS, parser
from bedplate_agent.parse.text import NotUnderstood
from bedplate_agent.probe import Probe, Raw
from bedplate_agent.probes import probes
from bedplate_agent.profile import Profile
from bedplate_agent.registry import every
from bedplate_agent.verdict import PASS
from unit.health.replays import BASES, replay

PROBES = sorted({name for base in BASES for name in replay(base).raws})
# One base for each shape: three generations of drivers, two of DCGM, of nccl-tests and of NVSwitches.
PAIRS = [(base, name) for base in ("base-b200-595", "base-h100-535") for name in sorted(replay(base).raws)]
SAME = {"smi_again", "smi_after"}  # the shape of smi


@cache
def profile(base: str) -> Profile:
    return Profile(replay(base).profile)


@cache
def known(base: str) -> dict[str, Probe]:
    return probes(profile(base))


def readers(probe: str, base: str) -> list[Check]:
    """The checks that read a probe and are not skipped."""
    return [
        check
        for check in every()
        if profile(base).skipped(check.id) is None
        and any(probe == one or (one.endswith(":") and probe.startswith(one)) for one in check.probes)
    ]


def passing(base: str, probe: str, raw: Raw) -> list[str]:
    """The checks that pass although one probe said this."""
    facts = Facts({**replay(base).raws, probe: raw}, known(base))
    return [
        check.id
        for check in readers(probe, base)
        if all(finding.verdict == PASS for finding in evaluate(check, facts, profile(base)))
    ]


def refused(base: str, probe: str, text: str) -> bool:
    try:
        understood(known(base)[probe], Raw("done", text, code=0))
    except Unreadable:
        return True
    return False


@pytest.mark.parametrize(("base", "probe"), PAIRS)
def test_every_probe_is_read_by_a_check_and_whole_answers_pass(base: str, probe: str) -> None:
    # Drivers before 570 have no counters to compare after a burn.
    assert readers(probe, base) or (base, probe) == ("base-h100-535", "smi_after")
    assert passing(base, probe, replay(base).raws[probe]) == [check.id for check in readers(probe, base)]


@pytest.mark.slow
@pytest.mark.parametrize(("base", "probe"), [pair for pair in PAIRS if pair[1] not in SAME])
def test_no_truncation_of_an_answer_passes(base: str, probe: str) -> None:
    text = replay(base).raws[probe].out
    whole = len(text.rstrip("\n")) + 1  # an answer without its blank lines at the end is whole
    for length in range(whole):
        # An answer that does not end with a line is refused before its parser sees it: its length does not matter.
        if text[length - 1 : length] != "\n":
            assert length % 97 or refused(base, probe, text[:length])
        elif not refused(base, probe, text[:length]):
            assert passing(base, probe, Raw("done", text[:length], code=0)) == [], f"{length} of {len(text)}"


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize(
    "text", ["", "\n", " \n", "\0\n", "None\n", "null\n", "{}\n", "[]\n", "0\n", "OK\n", "end\t0\n"]
)
def test_no_answer_without_contents_passes(probe: str, text: str) -> None:
    if (probe, text) == ("history", "end\t0\n"):
        return  # whole, and true of a node that looks at itself for the first time
    assert passing(_base(probe), probe, Raw("done", text, code=0)) == []


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("state", ["late", "abandoned", "absent", "unasked"])
def test_no_probe_without_an_answer_passes_whatever_it_printed_before(probe: str, state: str) -> None:
    text = replay(_base(probe)).raws[probe].out
    assert passing(_base(probe), probe, Raw(state, text, why="it was so")) == []


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("code", [1, 2, 9, 127, 137, 255, -9, None])
def test_no_probe_that_failed_passes_whatever_it_printed(probe: str, code: int | None) -> None:
    text = replay(_base(probe)).raws[probe].out
    assert passing(_base(probe), probe, Raw("done", text, code=code)) == []


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_that_was_not_asked_is_no_pass(probe: str) -> None:
    base = _base(probe)
    raws = {name: raw for name, raw in replay(base).raws.items() if name != probe}
    facts = Facts(raws, known(base))
    for check in readers(probe, base):
        assert any(finding.verdict != PASS for finding in evaluate(check, facts, profile(base)))


DIGITS = {
    "arabic": str.maketrans(string.digits, "٠١٢٣٤٥٦٧٨٩"),
    "fullwidth": str.maketrans(string.digits, "".join(chr(0xFF10 + n) for n in range(10))),
}
WORDS = {
    "german": {"Enabled": "Aktiviert", "Disabled": "Deaktiviert", "Yes": "Ja", "No": "Nein", "Completed": "Fertig",
               "Success": "Erfolg", "Not Active": "Nicht aktiv", "active": "aktiv", "loaded": "geladen", "Pass": "OK.",
               "Healthy": "Gesund", "Normal": "Normal.", "Limit ": "Grenze ", "GB/s": "GB/Sek", "OK": "gut",
               "ACTIVE": "AKTIV", "Legend:": "Legende:", "SEL": "Ereignisse", "Live": "Aktiv", "Default": "Standard"},
    "chinese": {"Enabled": "已启用", "Disabled": "已禁用", "Yes": "是", "No": "否", "Completed": "完成",
                "Success": "成功",
                "active": "活动", "Pass": "通过", "Healthy": "健康", "Normal": "正常", "GB/s": "吉字节/秒", "OK": "好",
                "Limit ": "限制 ", "ACTIVE": "活动", "Legend:": "图例:", "SEL": "日志", "Live": "活",
                "Default": "默认"},
}  # fmt: skip
FREE = {"processes", "mount:/"}  # names of programs and paths may be in any script


@pytest.mark.parametrize("probe", [probe for probe in PROBES if probe not in FREE])
@pytest.mark.parametrize("script", DIGITS)
def test_no_answer_with_other_digits_passes(probe: str, script: str) -> None:
    text = replay(_base(probe)).raws[probe].out
    other = text.translate(DIGITS[script])
    if other != text:
        assert passing(_base(probe), probe, Raw("done", other, code=0)) == []


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("language", WORDS)
def test_no_answer_in_another_language_passes_where_its_words_were_translated(probe: str, language: str) -> None:
    text = other = replay(_base(probe)).raws[probe].out
    for word, translated in WORDS[language].items():
        other = other.replace(word, translated)
    if other == text:
        return
    base, before = _base(probe), known(_base(probe))[probe]
    facts = Facts({**replay(base).raws, probe: Raw("done", other, code=0)}, known(base))
    changed = [check.id for check in readers(probe, base) if check.id in TRANSLATED.get(probe, ())]
    for check in readers(probe, base):
        if check.id in changed or (language == "chinese" and not before.foreign):
            assert any(finding.verdict != PASS for finding in evaluate(check, facts, profile(base))), check.id


# Of a probe with many words, the checks that read one of those that the test translates.
TRANSLATED = {
    "smi": ("gpu.persistence", "gpu.mig", "gpu.ecc_mode", "gpu.remap_pending", "gpu.remap_failure", "fabric.state",
            "gpu.throttle", "gpu.compute_mode", "gpu.ecc_aggregate"),
    "units": ("host.services", "fabric.manager"), "dcgm_diag": ("dcgm.diag",), "dcgm_health": ("dcgm.health",),
    "infiniband": ("ib.state",), "modules": ("rdma.modules",), "nvlink_status": ("nvlink.links",),
    "topology": ("nvlink.topology",), "p2p": ("fabric.p2p",), "limits": ("host.limits",), "burn": ("gpu.burn",),
    "bmc_info": ("bmc.events",),
}  # fmt: skip


@pytest.mark.parametrize("probe", ["nvlink_status", "time", "nccl", "ib_write", "nvbandwidth"])
def test_no_answer_with_decimal_commas_passes(probe: str) -> None:
    text = replay(_base(probe)).raws[probe].out
    assert passing(_base(probe), probe, Raw("done", text.replace(".", ","), code=0)) == []


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.binary(max_size=400), probe=st.sampled_from(sorted(PARSERS)))
def test_parsers_raise_nothing_but_that_they_did_not_understand(data: bytes, probe: str) -> None:
    with suppress(NotUnderstood):
        parser(probe)(data.decode("utf-8", "replace") + "\n")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), probe=st.sampled_from(PROBES))
def test_no_random_bytes_pass(data: st.DataObject, probe: str) -> None:
    noise = data.draw(st.binary(max_size=300)).decode("utf-8", "replace")
    assert passing(_base(probe), probe, Raw("done", noise + "\n", code=0)) == []


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), probe=st.sampled_from(PROBES))
def test_bytes_lost_inside_an_answer_break_no_parser(data: st.DataObject, probe: str) -> None:
    text = replay(_base(probe)).raws[probe].out
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 200)))
    noise = data.draw(st.text(max_size=20))
    with suppress(Unreadable):
        understood(known(_base(probe))[probe], Raw("done", text[:start] + noise + text[end:], code=0))


def _base(probe: str) -> str:
    return next(base for base in ("base-b200-595", "base-h200-550") if probe in replay(base).raws)

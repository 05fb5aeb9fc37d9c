"""Slurm's accounts: what is written is read, what is there is left alone, the second time there is nothing to do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.decide.accounts import Found, commands
from bedplate.model.accounts import QOS, Account, parse_accounts
from bedplate.model.faults import BadInput

FILE = """\
accounts:
  students: {qos: [spare], parent: research, users: [bob]}
  research: {description: Everybody who trains, qos: [small, spare], default_qos: small}
  main: {parent: research, qos: [training, small], users: [alice, carol]}
"""
FRESH = Found(
    clusters="", qos="normal|0||cluster|00:00:00\n", accounts="root|default root account\n",
    associations="root|||normal|\nroot||root|normal|\n",
)  # fmt: skip
# What sacctmgr 24.11 printed after the commands.
DONE = Found(
    clusters="lab\n",
    qos="normal|0||cluster|00:00:00\nspare|10||requeue|00:02:00\nsmall|100|spare|requeue|00:02:00\n"
    "training|1000|normal,small,spare|cluster|00:00:00\n",
    accounts="main|main\nresearch|everybody who trains\nroot|default root account\nstudents|students\n",
    associations="root|||normal|\nroot||root|normal|\nresearch|root||small,spare|small\n"
    "main|research||small,training|training\nmain||alice|small,training|training\n"
    "main||carol|small,training|training\nstudents|research||spare|spare\nstudents||bob|spare|spare\n",
)
ACCOUNTS = parse_accounts(FILE, "accounts.yml")


def test_an_account_comes_after_its_parent() -> None:
    assert [account.name for account in ACCOUNTS] == ["research", "main", "students"]
    assert ACCOUNTS[1] == Account("main", "main", "research", ("training", "small"), "training", ("alice", "carol"))


def test_a_new_cluster_gets_everything_in_an_order_that_works() -> None:
    said = [" ".join(words[2:]) for words in commands(FRESH, "lab", ACCOUNTS)]
    assert said == [
        "add cluster lab",
        "add qos spare",
        "modify qos spare set priority=10 preemptmode=requeue gracetime=120",
        "add qos small",
        "modify qos small set priority=100 preempt=spare preemptmode=requeue gracetime=120",
        "add qos training",
        "modify qos training set priority=1000 preempt=normal,small,spare",
        (
            "add account research cluster=lab parent=root description=Everybody who trains organization=root "
            "qos=small,spare defaultqos=small"
        ),
        (
            "add account main cluster=lab parent=research description=main organization=root "
            "qos=training,small defaultqos=training"
        ),
        (
            "add account students cluster=lab parent=research description=students organization=root "
            "qos=spare defaultqos=spare"
        ),
        "add user alice,carol account=main cluster=lab",
        "add user bob account=students cluster=lab",
    ]


def test_a_cluster_that_has_it_all_is_left_alone() -> None:
    assert commands(DONE, "lab", ACCOUNTS) == []


def test_what_others_made_is_left_alone() -> None:
    more = Found(
        DONE.clusters + "other\n", DONE.qos + "debug|7||cluster|00:00:00\n", DONE.accounts + "visitors|guests\n",
        DONE.associations + "visitors|root||normal|normal\nvisitors||dora|normal|normal\nmain||dora|small|small\n",
    )  # fmt: skip
    assert commands(more, "lab", ACCOUNTS) == []


@pytest.mark.parametrize(
    ("old", "new", "command"),
    [
        ("spare|10|", "spare|500|", "modify qos spare set priority=10"),
        ("|normal,small,spare|", "|small|", "modify qos training set preempt=normal,small,spare"),
        ("spare|10||requeue|", "spare|10||cancel|", "modify qos spare set preemptmode=requeue"),
        ("requeue|00:02:00\ntrain", "requeue|1-00:00:30\ntrain", "modify qos small set gracetime=120"),
        (
            "main|research||", "main|root||",
            "modify account where name=main cluster=lab set parent=research",
        ),
        (
            "students|research||spare|spare", "students|research||spare,training|training",
            "modify account where name=students cluster=lab set qos=spare defaultqos=spare",
        ),
        (
            "research|everybody who trains", "research|somebody",
            "modify account where name=research set description=Everybody who trains",
        ),
        ("main||carol|small,training|training\n", "", "add user carol account=main cluster=lab"),
        ("lab\n", "", "add cluster lab"),
    ],
)  # fmt: skip
def test_one_difference_is_one_command(old: str, new: str, command: str) -> None:
    texts = [DONE.clusters, DONE.qos, DONE.accounts, DONE.associations]
    at = next(index for index, text in enumerate(texts) if old in text)
    texts[at] = texts[at].replace(old, new, 1)
    assert [" ".join(words[2:]) for words in commands(Found(*texts), "lab", ACCOUNTS)] == [command]


def test_output_of_another_shape_is_not_taken_for_an_empty_cluster() -> None:
    with pytest.raises(ValueError, match="sacctmgr printed 'error: no connection'"):
        commands(Found("lab\n", "error: no connection\n", "", ""), "lab", ACCOUNTS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("accounts: {a: {qos: [spare], parent: b}}", 'no account "b"'),
        ("accounts: {a: {qos: [spare], parent: b}, b: {qos: [spare], parent: a}}", "is its own parent"),
        ("accounts: {a: {}}", "no qos"),
        ("accounts: {a: {qos: [fast]}}", 'no QOS "fast"'),
        ("accounts: {a: {qos: [spare], default_qos: small}}", "is not among qos"),
        ("accounts: {A!: {qos: [spare]}}", "is no name of an account"),
        ("accounts: {root: {qos: [spare]}}", "is no name of an account"),
        ("accounts: {a: {qos: [spare], users: [bob, bob]}}", "stands there twice"),
        ("accounts: {a: {qos: [spare], quota: 3}}", "quota"),
        ("people: {}", "accounts"),
    ],
)
def test_a_fault_in_the_file_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as fault:
        parse_accounts(text, "accounts.yml")
    assert all(str(one).startswith("accounts.yml") for one in fault.value.faults)


NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True).filter(lambda name: name not in ("root", "normal"))


@st.composite
def trees(draw: st.DrawFn) -> list[Account]:
    names = draw(st.lists(NAMES, unique=True, max_size=6))
    found: list[Account] = []
    for at, name in enumerate(names):
        qos = tuple(draw(st.lists(st.sampled_from(QOS), unique=True, min_size=1)))
        parent = draw(st.sampled_from(["root", *names[:at]]))
        users = tuple(draw(st.lists(NAMES, unique=True, max_size=3)))
        found.append(Account(name, draw(NAMES), parent, qos, draw(st.sampled_from(qos)), users))
    return found


class Accounting:
    """As much of sacctmgr as the commands need: what it is told is what it shows."""

    def __init__(self) -> None:
        self.clusters: list[str] = []
        self.qos: dict[str, dict[str, str]] = {"normal": {}}
        self.accounts: dict[str, dict[str, str]] = {}
        self.users: list[tuple[str, str]] = []

    def run(self, words: list[str]) -> None:
        verb, what, *rest = words[2:]
        told = dict(word.split("=", 1) for word in rest if "=" in word)
        if (verb, what) == ("add", "cluster"):
            self.clusters.append(rest[0])
        elif what == "qos":
            self.qos.setdefault(rest[0], {}).update(told)
        elif (verb, what) == ("add", "account"):
            assert told["parent"] == "root" or told["parent"] in self.accounts
            self.accounts[rest[0]] = told
        elif what == "account":
            self.accounts[told.pop("name")].update(told)
        else:
            self.users += [(told["account"], user) for user in rest[0].split(",")]

    def shown(self) -> Found:
        def grace(seconds: str) -> str:
            return f"00:{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"

        qos = "".join(
            f"{n}|{q.get('priority', '0')}|{q.get('preempt', '')}|{q.get('preemptmode', 'cluster')}|"
            f"{grace(q.get('gracetime', '0'))}\n"
            for n, q in self.qos.items()
        )
        accounts = "".join(f"{n}|{a['description'].lower()}\n" for n, a in self.accounts.items())
        own = "".join(f"{n}|{a['parent']}||{a['qos']}|{a['defaultqos']}\n" for n, a in self.accounts.items())
        users = "".join(f"{account}||{user}|x|x\n" for account, user in self.users)
        return Found("".join(f"{c}\n" for c in self.clusters), qos, accounts, own + users)


@pytest.mark.slow
@given(trees(), trees())
def test_whatever_was_there_after_the_commands_there_is_nothing_to_do(
    before: list[Account], wanted: list[Account]
) -> None:
    there = Accounting()
    for tree in (before, wanted):
        for words in commands(there.shown(), "lab", tree):
            there.run(words)
        assert commands(there.shown(), "lab", tree) == []

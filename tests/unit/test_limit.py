"""--limit as a person writes it: Slurm's host lists and names of nobody are refused, Ansible's patterns are not."""

import pytest

from bedplate.decide.limit import refusal

HOSTS = [f"n{i}" for i in range(1, 9)] + [f"gpu{i:03d}" for i in range(1, 31)]
GROUPS = ["training", "kind_gpu", "rack_r01", "rack_r02", "gpu"]


@pytest.mark.parametrize(
    ("limit", "instead"),
    [
        ("n[1-2]", "n1,n2"), ("n[1,3]", "n1,n3"), ("n8,n[1-2]", "n8,n1,n2"), ("n[1-5/2]", "n1,n3,n5"),
        # Also where a group has the name: Ansible would take its third and its fourth host.
        ("gpu[002-003]", "gpu002,gpu003"),
        ("training:!n[1-2]", "'training,!n1,!n2'"), ("training,&n[1-2]", "'training,&~(n1|n2)$'"),
    ],
)  # fmt: skip
def test_a_host_list_is_refused_with_the_words_that_ansible_takes(limit: str, instead: str) -> None:
    assert refusal(limit, HOSTS, GROUPS) == f"--limit takes Ansible's patterns; '{limit}' is: --limit {instead}"


@pytest.mark.parametrize(
    "limit",
    [
        "n1", "n1,n2", "n1:n2", "n1, n2", "n1 n2", "all", "all:!n1", "!n1", "n*", "n?", "~n[1-2]", "@file",
        "training[0-2]", "training[0:2]", "training[-1]", "kind_gpu:&rack_r01", "localhost", "n1,",
    ],
)  # fmt: skip
def test_patterns_of_ansible_are_left_to_it(limit: str) -> None:
    assert refusal(limit, HOSTS, GROUPS) is None


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("n9", "the fleet has no node n9, and no such group; nearest: n"),
        ("n1,trainning", "the fleet has no node trainning, and no such group; nearest: training"),
        ("n[7-9]", "the fleet has no node n9, and no such group; nearest: n"),
        ("n[12]", "the fleet has no node n12, and no such group; nearest: n"),
    ],
)
def test_a_name_that_is_nobodys_is_refused_with_the_nearest(limit: str, said: str) -> None:
    why = refusal(limit, HOSTS, GROUPS)
    assert why is not None
    assert why.startswith(f"--limit '{limit}': {said}")


def test_a_name_may_be_that_of_another_inventory() -> None:
    assert refusal("n9", HOSTS, GROUPS, complete=False) is None
    assert refusal("n[1-2]", HOSTS, GROUPS, complete=False) is not None

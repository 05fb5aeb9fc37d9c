import json
from pathlib import Path

import pytest

from bedplate.model.faults import BadInput
from bedplate.sources.credentials import auth_files, look_up
from unit.registryd import write_auth


@pytest.mark.parametrize(
    ("key", "path", "found"),
    [
        ("r.lab:5443", "a/b", True),
        ("r.lab:5443/a", "a/b", True),
        ("r.lab:5443/a/b", "a/b", True),
        ("https://r.lab:5443", "a/b", True),
        ("r.lab:5443/a/c", "a/b", False),
        ("r.lab", "a/b", False),
    ],
)
def test_credentials_are_found_by_host_and_namespace(tmp_path: Path, key: str, path: str, found: bool) -> None:
    auth = write_auth(tmp_path / "auth.json", key)
    credentials = look_up("r.lab:5443", path, [tmp_path / "none", auth]).credentials
    assert (credentials is not None) == found
    if credentials:
        assert (credentials.username, credentials.password) == ("ci", "se:cret")
        assert "se:cret" not in repr(credentials)


@pytest.mark.parametrize(
    "text", ["no json", "[]", '{"auths": {"r.lab": {"auth": "!"}}}', '{"auths": {"r.lab": {"auth": "Y2k="}}}']
)
def test_damaged_credentials_are_a_fault(tmp_path: Path, text: str) -> None:
    (tmp_path / "auth.json").write_text(text)
    with pytest.raises(BadInput, match=r"auth\.json"):
        look_up("r.lab", "a/b", [tmp_path / "auth.json"])


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ({"auths": {"r.lab": {}}, "credsStore": "pass"}, "docker-credential-pass"),
        ({"credHelpers": {"r.lab": "ecr-login"}}, "docker-credential-ecr-login"),
        ({"auths": {"r.lab": {"identitytoken": "secret"}}}, "identitytoken"),
        ({"auths": {"https://r.lab/v1/": {"registrytoken": "secret"}}}, "registrytoken"),
    ],
)
def test_what_is_kept_elsewhere_is_named_as_not_read(tmp_path: Path, document: object, names: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(document))
    found = look_up("r.lab", "a/b", [tmp_path / "config.json"])
    assert found.credentials is None
    assert names in "".join(found.not_read)
    assert "secret" not in "".join(found.not_read)
    assert look_up("other.lab", "a/b", [tmp_path / "config.json"]).not_read == ()


def test_a_file_after_one_that_cannot_be_read_from_still_counts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"credHelpers": {"r.lab": "ecr-login"}}')
    auth = write_auth(tmp_path / "auth.json", "r.lab")
    found = look_up("r.lab", "a/b", [tmp_path / "config.json", auth])
    assert found.credentials
    assert str(auth) in found.credentials.origin


def test_dockers_old_file_has_its_entries_at_the_top(tmp_path: Path) -> None:
    entries = json.loads(write_auth(tmp_path / "a", "r.lab").read_text())["auths"]
    (tmp_path / ".dockercfg").write_text(json.dumps(entries))
    assert look_up("r.lab", "a/b", [tmp_path / ".dockercfg"]).credentials


@pytest.mark.parametrize("key", ["https://index.docker.io/v1/", "docker.io", "registry-1.docker.io"])
def test_docker_hub_goes_by_each_of_its_names(tmp_path: Path, key: str) -> None:
    auth = write_auth(tmp_path / "auth.json", key)
    assert look_up("docker.io", "library/debian", [auth]).credentials
    assert look_up("r.lab", "library/debian", [auth]).credentials is None


def enroots(tmp_path: Path, text: str) -> list[Path]:
    (tmp_path / ".credentials").write_text(text)
    return [tmp_path / ".credentials"]


def test_enroots_file_is_looked_up_without_the_port(tmp_path: Path) -> None:
    files = enroots(tmp_path, "# ours\nmachine r.lab login ci password se:cret\n")
    found = look_up("r.lab:5443", "a/b", files).credentials
    assert found
    assert (found.username, found.password, found.enroots) == ("ci", "se:cret", True)
    assert found.origin == f'machine "r.lab", {tmp_path}/.credentials:2'
    assert "se:cret" not in repr(found)
    assert look_up("other.lab", "a/b", files).credentials is None


def test_ngcs_login_is_taken_as_it_stands_and_its_password_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = enroots(tmp_path, "machine nvcr.io login $oauthtoken password $NGC_API_KEY\n")
    monkeypatch.setenv("NGC_API_KEY", "nvapi-1")
    found = look_up("nvcr.io", "nvidia/pytorch", files).credentials
    assert found
    assert (found.username, found.password) == ("$oauthtoken", "nvapi-1")
    monkeypatch.delenv("NGC_API_KEY")
    assert "$NGC_API_KEY, which is not set" in look_up("nvcr.io", "nvidia/pytorch", files).not_read[0]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("machine r.lab login ci\npassword se:cret", "no password on the same line"),
        ("machine r.lab login ci password $(pass show r)", "computed by a shell"),
    ],
)
def test_a_line_that_enroot_would_not_find_is_named(tmp_path: Path, line: str, says: str) -> None:
    assert says in "".join(look_up("r.lab", "a/b", enroots(tmp_path, line)).not_read)


def test_docker_hub_in_enroots_file_is_its_server(tmp_path: Path) -> None:
    files = enroots(tmp_path, "machine registry-1.docker.io login me password x\n")
    assert look_up("docker.io", "library/debian", files).credentials


def test_a_named_auth_file_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_AUTH_FILE", "/srv/auth.json")
    assert auth_files() == [Path("/srv/auth.json")]
    for name in ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_CONFIG_HOME", "ENROOT_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert Path.home() / ".docker/config.json" in auth_files()
    assert Path.home() / ".config/enroot/.credentials" in auth_files()
    monkeypatch.setenv("ENROOT_CONFIG_PATH", "/srv/enroot")
    assert auth_files()[-1] == Path("/srv/enroot/.credentials")

"""ssh_config: OpenSSH's own answer, and the parser for machines without it, agree."""

from __future__ import annotations

import getpass
from pathlib import Path

import msgspec
import pytest
from dflash_watch.place import Place
from dflash_watch.transport import ssh_options
from dflash_watch.transport.base import Reason, TransportError
from dflash_watch.transport.ssh_options import SshOptions, fetch_options

MAIN = """
Include {dir}/more_*
Host gpu-box
  Include {dir}/inner
  Port 2222
  IdentityFile ~/.ssh/%h-key
  IdentityFile {dir}/second
  IdentitiesOnly yes
  UserKnownHostsFile {dir}/one {dir}/two
Host far
  ProxyJump me@gate:2200,inner
Host piped
  ProxyCommand nc -x 'a b' %h %p %%
Match originalhost gpu-box
  User trainer
Host *
  StrictHostKeyChecking accept-new
  ConnectTimeout 7
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "inner").write_text("HostName 10.1.2.6\nHostKeyAlias lab\n")
    (tmp_path / "more_a").write_text("Host far\n  HostName 10.9.9.9\n  User root\n")
    (tmp_path / "config").write_text(MAIN.format(dir=tmp_path))
    return str(tmp_path / "config")


def _both(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[SshOptions]:
    """With OpenSSH and, by an empty PATH, without."""
    resolved = [fetch_options(place)]
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nonexistent")
        resolved.append(fetch_options(place))
    return resolved


def test_a_host_block_is_resolved_the_same_with_and_without_openssh(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 6: paramiko ignores Include."""
    for options in _both(Place(host="gpu-box", ssh_config=config), monkeypatch):
        assert (options.hostname, options.port, options.user) == ("10.1.2.6", 2222, "trainer")
        keys = (str(Path("~/.ssh/10.1.2.6-key").expanduser()), str(tmp_path / "second"))
        assert options.identity_files == keys
        assert options.identities_only
        assert options.known_hosts[:2] == (str(tmp_path / "one"), str(tmp_path / "two"))
        assert (options.host_key_alias, options.strict) == ("lab", "accept-new")
        assert options.connect_timeout_s == 7


def test_jumps_and_proxy_commands_are_read_the_same(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 6: paramiko does nothing with ProxyJump."""
    for options in _both(Place(host="far", ssh_config=config), monkeypatch):
        assert options.proxy_jump == ("me@gate:2200", "inner")
        assert (options.hostname, options.user) == ("10.9.9.9", "root")
    for options in _both(Place(host="piped", ssh_config=config), monkeypatch):
        assert options.proxy_command == "nc -x 'a b' piped 22 %"


def test_into_a_proxmox_container_root_is_the_default_and_only_the_default(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {
        Place(host="plain", ssh_config=config): getpass.getuser(),
        Place(host="plain", ssh_config=config, entry="pct", entry_arg="200"): "root",
        Place(host="gpu-box", ssh_config=config, entry="pct", entry_arg="200"): "trainer",
        Place(host="plain", user="me", ssh_config=config, entry="pct", entry_arg="200"): "me",
    }
    for place, user in expected.items():
        assert [options.user for options in _both(place, monkeypatch)] == [user, user]


def test_what_a_person_typed_wins_over_the_file(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(host="gpu-box", user="me", port=99, ssh_config=config)
    for options in _both(place, monkeypatch):
        assert (options.user, options.port) == ("me", 99)


def test_a_match_block_that_the_fallback_would_misread_applies_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 6: an unknown Match criterion is true for paramiko."""
    file = tmp_path / "config"
    file.write_text("Match sessiontype exec\n  Port 9\nHost a\n  User u\n")
    monkeypatch.setenv("PATH", "/nonexistent")
    options = fetch_options(Place(host="a", ssh_config=str(file)))
    assert (options.port, options.user) == (22, "u")


@pytest.mark.parametrize("host", ["-oProxyCommand=reboot", "", "a b", "a\nb"])
def test_a_name_that_could_be_an_option_never_reaches_ssh(host: str) -> None:
    with pytest.raises(TransportError, match="not a host name") as caught:
        fetch_options(Place(host=host))
    assert caught.value.reason is Reason.UNKNOWN_HOST


def test_a_broken_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host a\n  Prot 22\n")
    with pytest.raises(TransportError, match="ssh_config"):
        fetch_options(Place(host="a", ssh_config=str(tmp_path / "config")))


def test_options_are_plain_values() -> None:
    options = SshOptions(alias="a", hostname="a", port=22, user="u")
    assert msgspec.json.decode(msgspec.json.encode(options), type=SshOptions) == options


def test_a_command_of_the_configuration_that_hangs_is_an_attempt_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Match exec` asks a network that is gone, of all moments when the connection was lost."""
    monkeypatch.setattr(ssh_options, "_RESOLVE_TIMEOUT_S", 0.3)
    config = tmp_path / "config"
    config.write_text('Match exec "sleep 5"\n  User somebody\n')
    with pytest.raises(TransportError, match="Match exec") as raised:
        fetch_options(Place(host="box", ssh_config=str(config)))
    assert not raised.value.permanent

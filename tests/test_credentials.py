"""No key is shown, and no text of others moves the cursor."""

import logging
from pathlib import Path

import pytest

from tests.build import Capture, Log, Patch
from toolformer.credentials import (
    is_address,
    is_secret,
    is_variable,
    masked,
    masked_address,
    printable,
    shown_address,
    without_credentials,
)
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.progress import configure
from toolformer.tools.user.endpoint import EndpointGenerator
from toolformer.tools.user.functions import FunctionTool

SECRET = "hunter2swordfish"
KEY = f"AIza{SECRET}-Xy_1"
ADDRESS = f"http://me:{SECRET}@127.0.0.1:9/v1/completions?api_key={SECRET}&api-version=2#{SECRET}"


def test_an_address_is_shown_without_what_may_be_a_key() -> None:
    assert shown_address(ADDRESS) == "http://127.0.0.1:9/v1/completions"
    assert shown_address("http://h/a") == "http://h/a" and shown_address(f"http://h?{SECRET}") == "http://h"
    assert shown_address(f"http://me:p@{SECRET}@h/x?y") == "http://h/x"
    assert without_credentials(f"401 for '{ADDRESS}'") == (
        "401 for 'http://127.0.0.1:9/v1/completions?api_key=***&api-version=***#***'"
    )
    assert without_credentials(f"no http://me:p@{SECRET}@h/x@y here") == "no http://y here"
    assert without_credentials(f"http://me:p@{SECRET}@h/x#t={SECRET}", mark="***@") == "http://***@h/x#***"
    assert without_credentials(f"Max retries exceeded with url: /w?q=x&appid={SECRET} (Caused by x)") == (
        "Max retries exceeded with url: /w?q=***&appid=*** (Caused by x)"
    )


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"http://me:{SECRET}/{SECRET}@h/v1", "http://h/v1"),
        (f"http://me:{SECRET}?{SECRET}@h/v1", "http://***"),
        (f"http://me:1#{SECRET}@h/v1", "http://***"),
        (f"http:/me:{SECRET}@h/x?k={SECRET}", "http:/h/x?k=***"),
        (f"http://h/v1?k={SECRET}'\"{SECRET}", "http://h/v1?k=***"),
        ("sqlite:////home/a@b/mlflow.db", "sqlite:////home/a@b/mlflow.db"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
    ],
)
def test_a_password_may_hold_what_an_address_may_not(address: str, shown: str) -> None:
    assert masked_address(address) == without_credentials(address) == shown


def test_a_name_says_what_is_a_secret() -> None:
    secrets = "api_key apiKey APIKEY PASSWD pwd passphrase Authorization Set-Cookie bearer X-Auth-Token DB_PASSWORD2 clientSecret"
    secrets += " accessKeyId aws_access_key_id sessionid session_id pat GITHUB_PAT pin otp privkey openaikey userpass token_value"
    secrets += " Passwort passPhrase pass_code smtp_pass sid sig client_pem userpwd"
    others = "key_variable max_tokens batch_tokens tokenizer monkey keyword secretary pin_memory pinned pattern signature"
    others += " eos_token_id doc_id turkey compass bypass path spin option patience passage passage_words"
    assert all(map(is_secret, secrets.split())) and not any(map(is_secret, others.split()))


def test_errors_of_others_name_no_key() -> None:
    for text in (
        f"bad api_key={SECRET}",
        f"Authorization: Basic {SECRET}",
        f"{{'Authorization': 'Basic {SECRET}'}}",
        f'{{"authorization": "{SECRET}"}}',
        f"--token='{SECRET} x'",
        f"sent Bearer {SECRET}!",
        f"x-api-key: {SECRET}",
        f"Cookie: a=b; s={SECRET}",
        f"Set-Cookie: s={SECRET}",
        f'{{"api_key": "{SECRET}"}}',
        f"{{'token': '{SECRET}', 'x': 1}}",
        f"password = {SECRET}",
        f"srv --api-key {SECRET}",
        f"host=h password={SECRET}",
        f"Server=h;Pwd={SECRET};",
        f"https://h/a;token={SECRET}",
        f"//u:{SECRET}@h",
        f"no host u:{SECRET}@h",
        f"password: {SECRET} is wrong",
        f"Invalid token: {SECRET}",
        f'{{\\"api_key\\": \\"{SECRET}\\"}}',
        f'password="a\'{SECRET}"',
        f'password="{SECRET} x',
        f"Authorization=Basic {SECRET}",
        f"key=api_key={SECRET}",
        f"client_secret => {SECRET}",
        f"'token' => '{SECRET}'",
        f"Password=a b {SECRET};",
        f"Password=a b {SECRET};Server=h",
        f"Server=h;User Id=u;Password=a b {SECRET}",
        f"Server=h; Pwd=a b {SECRET}; Encrypt=yes",
        f"curl -u me:{SECRET} -v",
        f"curl --user me:{SECRET}",
        f"{{'key': '{SECRET}'}}",
        f'{{"key": "{SECRET}", "x": 1}}',
        f"401 for ?key={SECRET}",
        f"'?q=x&key={SECRET}'",
        f"invalid x-api-key {SECRET}",
        f"bad my_api_key {SECRET}",
        f"Incorrect API key provided: {SECRET}.",
        f"sk-{SECRET}",
        f"no sk-proj-{SECRET} here",
        f"(hf_{SECRET})",
        f"ghp_{SECRET}",
        f"https://h/bot123:{SECRET}/x",
        f"url: /bot123:{SECRET}/x",
        f"https://h/sk-{SECRET}/x",
        f"key={KEY}",
        f"no key: {KEY}, sorry",
        f"key={'0a' * 16}{SECRET}"[:36] + f" mysql -h db -p{SECRET} -e x",
        f"mysqldump -p{SECRET}",
        f"sshpass -p {SECRET} ssh h",
        f"-----BEGIN RSA PRIVATE KEY-----\nMII{SECRET}\n-----END RSA PRIVATE KEY----- and",
        f"-----BEGIN PRIVATE KEY-----MII{SECRET}",
        f"a: 1\nprivateKey: |\n  MII\n\n  {SECRET}\nb: 2",
        f"- privateKey: >-\n    MII\n    {SECRET}\n  b: 2",
        f"privateKey: | MII {SECRET}",
        f"glpat-{SECRET}",
        f"xoxb-123456789012-{SECRET}",
        f"AIza{SECRET * 2}",
        f"npm_{SECRET * 2}",
        f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{SECRET}",
        f"<password>{SECRET}</password>",
        f"sv=1&sig={SECRET}",
        f"[('a', 'b'), (b'authorization', b'Basic {SECRET}')]",
    ):
        assert SECRET not in str(masked({"a": text})) and SECRET not in str(masked({text: 1}))
        assert SECRET not in without_credentials(text)
    for text in ("decoding.k=3", "set tool.x.api_key=... again", "pass TOKEN=$TOKEN", "expected key=value", "unexpected token: }",
                 "tool.x.api_key: must be a text", "at 127.0.0.1:80/a@b", "pin_memory = true", 'see "tokens": 3', "missing args: 'x'",
                 "pass: 3 of 5", "bearer authentication required", "cert.pem: [Errno 2] No such file", "{'key': 'decoding.k'}",
                 "no API key provided: see docs", "hf_model_name_or_path_2", "sk-learn is old", "why?a=3", "x => y",
                 "-u http://h", "f(signature=int)", "key=tool.roman.max_positions", "key: fd31cec4d9a01b77", "mysql is slow - please wait",
                 "-----BEGIN PUBLIC KEY-----", "<key>a1</key>",
                 "expected one of ('api_key', 'password')", "a <token> b </token>", "x&y=1", "AKIA is a name", "a table: | token |"):  # fmt: skip
        assert without_credentials(text) == text


def test_only_the_lines_of_a_secret_are_masked() -> None:
    assert (
        without_credentials(f"a: 1\n- privateKey: |\n    MII\n\n    {SECRET}\n  b: 2")
        == "a: 1\n- privateKey: ***\n  b: 2"
    )
    assert without_credentials(f"mysql -p{SECRET} -h h") == "mysql -p*** -h h"


def test_a_connection_string_shows_what_is_no_secret() -> None:
    assert without_credentials("Server=h;Password=a b c;Encrypt=yes") == "Server=h;Password=***;Encrypt=yes"
    assert without_credentials("sent password=a b; try again") == "sent password=*** b; try again"


def test_a_secret_after_its_option_is_masked() -> None:
    assert masked({"command": ["srv", "--api-key", SECRET, "--port", "80"]}) == {
        "command": ["srv", "--api-key", "***", "--port", "80"]
    }
    assert masked(["-u", f"me:{SECRET}", "--user", "me", "-u", "http://h"]) == [
        "-u",
        "***",
        "--user",
        "me",
        "-u",
        "http://h",
    ]
    assert masked(["/bin/mysql", "-h", "h", f"-p{SECRET}", "-e"]) == ["/bin/mysql", "-h", "h", "***", "-e"]
    assert masked(["sshpass", "-p", SECRET, "ssh"]) == ["sshpass", "-p", "***", "ssh"]
    assert masked(["-password", SECRET, "--max-tokens", 3]) == ["-password", "***", "--max-tokens", 3]


def test_many_addresses_are_masked_in_linear_time() -> None:
    """Where each were looked for to the end of the text, this would take an hour."""
    for text in (
        "args:" * 100_000,
        "key=key=" * 50_000,
        "api_key: a " * 40_000,
        'token="' * 70_001,
        "a:a@" * 100_000,
        "password=a b " * 40_000,
        "a=b; password=a b" * 30_000,
        "sk-" * 100_000,
        "api key: " * 50_000,
        "-u a:" * 60_000,
        "/bot1" * 60_000,
        "?key" * 70_000,
        "token =>" * 50_000,
        "mysql " * 70_000,
        "<pw>" * 70_000,
        "<pw>a" * 70_000,
        "&a" * 70_000,
        "('a', '" * 50_000,
        "eyJ" * 50_000,
        "eyJ-" * 50_000,
        "-----BEGIN PRIVATE KEY-----" * 20_000,
        "api_key: |\n" * 50_000,
        "api_key: |\n " * 50_000,
    ):
        without_credentials(text)
    for end, shown in (("", ""), ("?key=x", "?key=***"), ("#x", "#***")):
        text = "http://" * 70_000
        assert without_credentials(text + end) == text + shown


def test_an_address_to_ask_has_a_host_and_no_password() -> None:
    with_credentials = [f"http://{user}h/v1" for user in ("u:p@", "t@", "u:p@d@")]
    for url in (None, "127.0.0.1:8000", "http://", *with_credentials):
        assert not is_address(url)
    assert is_address("https://h/v1/completions?at=@")


def test_a_key_is_no_variable(monkeypatch: Patch) -> None:
    for key in ("AbC0123deadbeef", "0" * 8, "sk_x", "hf_x", "deadbeef", "a b", "é"):
        assert not is_variable(key)
        with pytest.raises(ValueError, match="must be the name of an environment variable") as error:
            EndpointGenerator("http://127.0.0.1:9/v1", "m", key_variable=key)
        assert key not in str(error.value)
    for name in ("OPENAI_API_KEY", "MY_KEY_2024", "_KEY"):
        assert is_variable(name)
    monkeypatch.setenv("AbC0123deadbeef", "x")  # one that is there may have any name
    assert is_variable("AbC0123deadbeef")


TOOL = """
def weather(city: str) -> str:
    \"\"\"Tell the weather.\"\"\"
    raise ValueError("401 Client Error for url: https://me:{0}@127.0.0.1/w?q=x&appid={0}")
"""


def test_what_a_tool_raises_is_logged_without_its_keys(tmp_path: Path, caplog: Log) -> None:
    (tmp_path / "weather.py").write_text(TOOL.format(SECRET))
    tool = FunctionTool(f"{tmp_path / 'weather.py'}:weather")
    (result,) = tool.run(["'x'"], [Document("d", "a text")])
    assert result.reason == "tool failed (ValueError)"
    assert "401 Client Error" in caplog.text and SECRET not in caplog.text
    (tmp_path / "ends.py").write_text(f"raise ValueError('https://h/?key={SECRET}')")
    with pytest.raises(UserError, match="cannot be imported") as error:
        FunctionTool(f"{tmp_path / 'ends.py'}:weather")
    assert SECRET not in str(error.value)


def test_escape_sequences_reach_no_terminal(capsys: Capture) -> None:
    assert printable("\x1b]0;x\x07 é 漢\t\r\n\x9b2J\u202e") == "\ufffd]0;x\ufffd é 漢\t\ufffd\n\ufffd2J\ufffd"
    before = logging.getLogger().handlers[:]
    try:
        configure()
        logging.getLogger("toolformer").warning("tool: %s", "\x1b[2J")
    finally:
        logging.getLogger().handlers[:] = before
    assert "tool: \ufffd[2J" in capsys.readouterr().err

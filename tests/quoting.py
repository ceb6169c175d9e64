# SPDX-License-Identifier: Apache-2.0
"""Hostile text, and programs that show how they read text in the languages that utvm writes."""

import os
import random
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

_PIECES = (
    *"[]{}$;\"'\\`|&<>()*?!#%~^@=+-_/.,: \t\n\r\0\x01\x1b\x7f\x85",
    *"ab0é語\u200f\u202e\u2028\ufeff\ufffd\U0001f4a9\udc80\udcff\ud800\udfff",
    *("\x1b[2J", "\x1b]0;t\x07", "[exec touch pwned]", "$(touch pwned)", "`touch pwned`", "'; touch pwned; '"),
    *('"; shell touch pwned\n', "\nshell touch pwned\n", "} ; exec touch pwned ; {", "*/ #error \n", "??/", "??="),
    *("</script><script>", "]]>", "&amp;", "{{ 7*7 }}", "%n", "%%", "\\u0041", "\\x41", "\\n", "\\"),
    *('" } INCLUDE pwned', "${HOME}", "#{`touch pwned`}", "<%= 1 %>", "| a |", "**b**", "- c", "&#65;", "!x"),
    *(": [", "' or 1=1 --"),
)


def hostile_strings(count: int, without: str = "") -> list[str]:
    """Return texts that are hostile in some language: the same ones each time, without some letters."""
    chance = random.Random(count)
    drawn = ("".join(chance.choices(_PIECES, k=chance.randint(1, 8))) for _ in range(count))
    return [re.sub(f"[{without}]", "", text) if without else text for text in drawn]


def openocd(words: Sequence[str], folder: Path) -> list[bytes]:
    """Return the values of Tcl words in OpenOCD, each also in quotes."""
    script = [f'echo "\\u0001\\u0002[set a {word}]\\u0003\\u0002[set a "{word}"]\\u0003"' for word in words]
    (folder / "words.tcl").write_bytes(os.fsencode("\n".join([*script, "shutdown", ""])))
    completed = run(["openocd", "-f", "words.tcl"], folder)
    return re.findall(rb"\x02(.*?)\x03", completed.stdout + completed.stderr, re.DOTALL)


def gdb(words: Sequence[str], folder: Path) -> list[bytes]:
    """Return the values of arguments of GDB's commands."""
    script = [f"set substitute-path from{number}x {word}" for number, word in enumerate(words)]
    (folder / "words.gdb").write_bytes(os.fsencode("\n".join([*script, "show substitute-path", ""])))
    completed = run(["gdb-multiarch", "--nx", "--batch", "-x", "words.gdb"], folder)
    assert not completed.stderr, completed.stderr
    return re.findall(rb"`from\d+x' -> `(.*?)'\.\n", completed.stdout, re.DOTALL)


def shell(words: Sequence[str], folder: Path) -> list[bytes]:
    """Return the values of words of the shell."""
    (folder / "words.sh").write_bytes(os.fsencode(f"printf '%s\\0' {' '.join(words)}"))
    return run(["sh", "words.sh"], folder).stdout.split(b"\0")[:-1]


def ssh(words: Sequence[str], folder: Path) -> list[bytes]:
    """Return the paths that ssh reads from its configuration."""
    paths = []
    for start in range(0, len(words), 100):  # ssh's maximum
        text = "".join(f"CertificateFile {word}\n" for word in words[start : start + 100])
        (folder / "config").write_bytes(os.fsencode(text))
        completed = run(["ssh", "-G", "-F", "config", "h"], folder)
        paths += re.findall(rb"^certificatefile (.*)$", completed.stdout, re.MULTILINE)
    return paths


def gcc(literals: Sequence[str], comments: Sequence[str], folder: Path) -> list[bytes]:
    """Return the bytes of string literals of C, beside comments, as the strictest compiler reads them."""
    rows = "".join(f"  {{{a}, sizeof {a} - 1u}}, /* {b} */\n" for a, b in zip(literals, comments, strict=True))
    (folder / "w.c").write_text(
        "#include <stdio.h>\nstatic const struct { const char *text; size_t size; } words[] = {\n"
        f"{rows}}};\nint main(void) {{\n  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {{\n"
        '    printf("%zu ", words[i].size);\n    fwrite(words[i].text, 1, words[i].size, stdout);\n'
        "  }\n  return 0;\n}\n"
    )
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-trigraphs", "-Wno-overlength-strings"]
    compiled = run(["gcc", *flags, "w.c", "-o", "w"], folder)
    assert not compiled.returncode, compiled.stderr
    output, values = run([str(folder / "w")], folder).stdout, []
    while output:
        size, _, rest = output.partition(b" ")
        values.append(rest[: int(size)])
        output = rest[int(size) :]
    return values


def linker(names: Sequence[str], folder: Path) -> list[bytes]:
    """Return the names of memory regions from the linker's map."""
    regions = "".join(f"  {n} : ORIGIN = {i * 16:#x}, LENGTH = 16\n" for i, n in enumerate(names))
    uses = "".join(f"  end_{i} = ORIGIN({n}) + LENGTH({n});\n" for i, n in enumerate(names))
    sections = f"SECTIONS\n{{\n{uses}  .a : {{ *(.a) }} > {names[-1]}\n}}\n"
    (folder / "w.ld").write_text(f"MEMORY\n{{\n{regions}}}\n{sections}")
    run(["arm-none-eabi-as", "/dev/null", "-o", "w.o"], folder)
    completed = run(["arm-none-eabi-ld", "-T", "w.ld", "--print-map", "w.o", "-o", "w.elf"], folder)
    assert b"rror" not in completed.stderr, completed.stderr
    return re.findall(rb"^(.*?) +0x[0-9a-f]{8} +0x0{6}10$", completed.stdout, re.MULTILINE)


def run(command: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[bytes]":
    """Run a program, and check that no text has been executed in its folder."""
    completed = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=60)
    assert not (folder / "pwned").exists()
    return completed


def check(values: Sequence[bytes], texts: Sequence[str], as_bytes: Callable[[str], bytes]) -> None:
    """Check that each value is its text."""
    assert len(values) == len(texts)
    for value, text in zip(values, texts, strict=True):
        assert value == as_bytes(text), ascii(text)

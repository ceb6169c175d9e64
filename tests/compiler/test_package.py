# SPDX-License-Identifier: Apache-2.0
"""The packaged library, unpacked in an empty folder, is built and run as by its users."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from package_user import ARM_FLAGS, build_and_run, build_and_run_on_arm, c_sources, call, parse_numbers, unpack

from models.digits.data import held_out
from utvm.compiler import compile_model, load, reference
from utvm.compiler.package import Terms, package_model, write_package
from utvm.errors import ConfigError

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "models" / "digits" / "digits.onnx"
IMAGE = held_out()[0][0][None]

# Functions of C99's <string.h> and <math.h>; no allocation, no output.
FROM_C_LIBRARY = {"memcpy", "memset", "memmove"} | {
    f"{name}{suffix}"
    for name in ("exp", "log", "sqrt", "tanh", "pow", "floor", "ceil", "fabs", "erf", "rint", "round", "trunc")
    for suffix in ("", "f")
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package_model(DIGITS, tmp_path_factory.mktemp("archive") / "digits.tar", example=[IMAGE])


@pytest.fixture(scope="module")
def package(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(archive, tmp_path_factory.mktemp("package") / "digits")


@pytest.fixture(scope="module")
def metadata(package: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((package / "metadata.json").read_text())
    return content


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return reference(load(DIGITS))([IMAGE])[0].ravel()


def assert_output(text: str, expected: np.ndarray) -> None:
    assert parse_numbers(text, "float32").tobytes() == expected.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_example_equals_the_reference(compiler: str, package: Path, expected: np.ndarray, tmp_path: Path) -> None:
    assert_output(build_and_run(package, compiler, tmp_path), expected)


def test_example_equals_the_reference_under_sanitizers(package: Path, expected: np.ndarray, tmp_path: Path) -> None:
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    assert_output(build_and_run(package, "gcc", tmp_path, flags), expected)


@pytest.mark.slow
def test_example_equals_the_reference_on_cortex_m(package: Path, expected: np.ndarray, tmp_path: Path) -> None:
    assert_output(build_and_run_on_arm(package, tmp_path), expected)


@pytest.mark.slow
def test_cmake_builds_and_installs_the_package(package: Path, expected: np.ndarray, tmp_path: Path) -> None:
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    flags = "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror -pedantic"
    call(["cmake", "-S", package, "-B", build, flags, f"-DCMAKE_INSTALL_PREFIX={prefix}"])
    call(["cmake", "--build", build, "--target", "all", "digits_example"])
    assert_output(call([build / "digits_example"]), expected)
    call(["cmake", "--install", build])

    user = tmp_path / "user"
    user.mkdir()
    (user / "main.c").write_text((package / "examples" / "plain" / "main.c").read_text())
    (user / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(user C)\nfind_package(digits REQUIRED CONFIG)\n"
        "add_executable(user main.c)\ntarget_link_libraries(user PRIVATE digits::digits)\n"
    )
    call(["cmake", "-S", user, "-B", user / "build", f"-DCMAKE_PREFIX_PATH={prefix}"])
    call(["cmake", "--build", user / "build"])
    assert_output(call([user / "build" / "user"]), expected)


def test_archive_is_model_library_format_7(metadata: dict[str, Any], package: Path) -> None:
    jsonschema.validate(metadata, json.loads((ROOT / "docs" / "package.schema.json").read_text()))
    module = metadata["modules"]["digits"]
    assert module["export_datetime"] == "1970-01-01 00:00:00Z"
    (main,) = module["memory"]["functions"]["main"]
    assert main["inputs"] == {"image": {"dtype": "float32", "size": 256}}
    assert main["outputs"] == {"logits": {"dtype": "float32", "size": 40}}
    assert main["constants_size_bytes"] == 6090 * 4
    for folder in ("codegen/host/src", "codegen/host/include", "parameters", "src"):
        assert (package / folder).is_dir()


def test_metadata_equals_the_files(metadata: dict[str, Any], package: Path) -> None:
    header = (package / "codegen" / "host" / "include" / "digits.h").read_text()
    details = metadata["utvm"]
    (region,) = details["regions"]
    assert f"#define DIGITS_ARENA_BYTES {region['bytes']}\n" in header
    assert f"at a multiple of {region['alignment']}" in header
    assert f"#define DIGITS_INPUT_0_OFFSET {details['inputs'][0]['offset']} " in header
    assert f"#define DIGITS_OUTPUT_0_OFFSET {details['outputs'][0]['offset']} " in header
    assert f"| {region['bytes']} |" in (package / "README.md").read_text()
    assert details["model"]["sha256"] == hashlib.sha256(DIGITS.read_bytes()).hexdigest()
    for name, digest in details["sources"].items():
        (file,) = (package / "codegen").rglob(name)
        assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    macs = 8 * 8 * 16 * 9 + 4 * 4 * 32 * 16 * 9 + 128 * 10
    assert sum(call["macs"] for call in details["calls"]) in (0, macs)


def test_tvm_reads_the_parameter_file(package: Path) -> None:
    from tvm.runtime import load_param_dict

    assert dict(load_param_dict((package / "parameters" / "digits.params").read_bytes())) == {}


def test_relax_text_has_the_model(package: Path) -> None:
    text = (package / "src" / "digits.relax").read_text()
    assert "R.nn.conv2d" in text and "R.nn.max_pool2d" in text and "0x" not in text


def test_files_are_unique(package: Path) -> None:
    files = [path for path in package.rglob("*") if path.is_file()]
    assert len({path.read_bytes() for path in files}) == len(files)


def test_sources_need_little_of_the_c_library(package: Path, tmp_path: Path) -> None:
    allowed = {"<stdint.h>", "<stdbool.h>", "<string.h>", "<math.h>"}
    own_headers = {f'"{path.name}"' for path in (package / "codegen").rglob("*.h")}
    for path in (package / "codegen").rglob("*.[ch]"):
        # A build with UTVM_STEPS provides its own headers.
        text = re.sub(r"#ifdef UTVM_STEPS\n.*?#else\n", "", path.read_text(), flags=re.DOTALL)
        included = set(re.findall(r"^\s*#\s*include\s+(\S+)", text, re.MULTILINE))
        assert included <= allowed | own_headers, path.name
    include = f"-I{package / 'codegen' / 'host' / 'include'}"
    defined, needed = set(), set()
    for source in c_sources(package):
        object_file = tmp_path / f"{source.stem}.o"
        call(["arm-none-eabi-gcc", *ARM_FLAGS, "-mfpu=fpv5-d16", "-mfloat-abi=hard", "-std=c99", "-O2", include,
              "-c", source, "-o", object_file])  # fmt: skip
        for line in call(["nm", object_file]).splitlines():
            (needed if line.split()[-2] == "U" else defined).add(line.split()[-1])
    assert needed - defined <= FROM_C_LIBRARY


def test_arduino_metadata_is_complete(package: Path) -> None:
    lines = (package / "library.properties").read_text().splitlines()
    properties = dict(line.split("=", 1) for line in lines)
    required = {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url",
                "architectures"}  # fmt: skip
    assert required <= properties.keys() and all(properties.values())
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 _.-]{,62}", properties["name"])
    assert properties["category"] == "Data Processing"
    assert (package / "src" / properties["includes"]).is_file()
    (sketch,) = (package / "examples").rglob("*.ino")
    assert sketch.stem == sketch.parent.name and list(sketch.parent.iterdir()) == [sketch]


@pytest.mark.slow
def test_arduino_folder_builds_alone(package: Path, expected: np.ndarray, tmp_path: Path) -> None:
    # Arduino compiles all of src/, finds headers there, and passes no flags of ours.
    program = tmp_path / "program"
    sources = sorted((package / "src").rglob("*.c"))
    call(["gcc", "-std=gnu11", "-Os", f"-I{package / 'src'}", *sources, package / "examples" / "plain" / "main.c",
          "-lm", "-o", program])  # fmt: skip
    assert_output(call([program]), expected)
    fused = [*ARM_FLAGS, "-mfpu=fpv5-d16", "-mfloat-abi=hard", "-std=gnu11", "-O2", "-S", "-o", "-"]
    source = package / "src" / "digits_operators.c"
    assert not re.search(r"\bvfn?m[as]", call(["arm-none-eabi-gcc", *fused, source]))
    plain = package / "codegen" / "host" / "src" / "digits_operators.c"
    assert re.search(r"\bvfn?m[as]", call(["arm-none-eabi-gcc", *fused, plain])), "the check above sees nothing"


def test_arduino_sketch_is_cpp(package: Path, tmp_path: Path) -> None:
    core = tmp_path / "core.h"
    core.write_text(
        "struct Port { void begin(long); void print(const char *); void println(long); void println(int);\n"
        "void println(double, int); };\nextern Port Serial;\nvoid delay(unsigned long);\n"
    )
    (sketch,) = (package / "examples").rglob("*.ino")
    object_file = tmp_path / "sketch.o"
    call(["arm-none-eabi-g++", "-std=gnu++11", "-Wall", "-Wextra", "-Werror", f"-I{package / 'src'}",
          "-include", core, "-x", "c++", "-c", sketch, "-o", object_file])  # fmt: skip
    assert "U digits_run" in call(["arm-none-eabi-nm", object_file]), "the sketch calls a C++ function"


def test_16_bit_int_is_refused(package: Path) -> None:
    options = ["-fsyntax-only", "-U__INT_MAX__", "-D__INT_MAX__=32767", package / "src" / "digits.c"]
    completed = subprocess.run(["arm-none-eabi-gcc", *options], capture_output=True, text=True, check=False)
    assert "needs an int of 32 bits" in completed.stderr


def test_zephyr_module_is_complete(package: Path, tmp_path: Path) -> None:
    module = yaml.safe_load((package / "zephyr" / "module.yml").read_text())
    assert module["name"] == "digits"
    folder = package / module["build"]["cmake"]
    assert "config UTVM_DIGITS\n" in (package / module["build"]["kconfig"]).read_text()
    # Zephyr's functions, replaced by ones that print their arguments.
    script = tmp_path / "zephyr.cmake"
    names = ("include_directories", "library_named", "library_sources", "library_compile_options")
    script.write_text(
        "".join(f'function(zephyr_{name})\nmessage(STATUS "{name}=${{ARGV}}")\nendfunction()\n' for name in names)
        + f'set(CONFIG_UTVM_DIGITS y)\ninclude("{folder / "CMakeLists.txt"}")\n'
    )
    output = dict(line.removeprefix("-- ").split("=", 1) for line in call(["cmake", "-P", script]).splitlines())
    assert {(folder / path).resolve() for path in output["library_sources"].split(";")} == set(c_sources(package))
    assert (folder / output["include_directories"] / "digits.h").is_file()


_PACKAGE = """
import sys
from pathlib import Path
from utvm.compiler.package import package_model
package_model(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_packages_of_two_processes_are_equal(tmp_path: Path) -> None:
    archives = []
    for number, mask in enumerate(("022", "077")):
        folder = tmp_path / f"folder {number}"
        folder.mkdir()
        path = folder / "digits.tar"
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PYTHONHASHSEED": str(number),
            "HOME": str(folder),
            "TZ": ("UTC", "Asia/Tokyo")[number],
        }
        command = ["sh", "-c", f'umask {mask}; exec "$@"', "sh", sys.executable, "-c", _PACKAGE, str(DIGITS)]
        subprocess.run([*command, str(path)], cwd=folder, env=environment, check=True, timeout=300)
        archives.append(path.read_bytes())
    assert archives[0] == archives[1]


def test_source_date_epoch_is_the_only_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(DIGITS)
    library = compile_model(model)
    undated = write_package(library, tmp_path / "a.tar", model=model).read_bytes()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    package = unpack(write_package(library, tmp_path / "b.tar", model=model), tmp_path / "b")
    metadata = json.loads((package / "metadata.json").read_text())
    assert metadata["modules"]["digits"]["export_datetime"] == "2023-11-14 22:13:20Z"
    assert (package / "README.md").stat().st_mtime == 1700000000
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert write_package(library, tmp_path / "c.tar", model=model).read_bytes() == undated
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ConfigError, match="SOURCE_DATE_EPOCH is 'yesterday'"):
        write_package(library, tmp_path / "d.tar", model=model)


def test_terms_are_in_all_files(tmp_path: Path) -> None:
    model = load(DIGITS)
    terms = Terms("2.3.4", "Ada <ada@example.org>", "https://example.org/net", "MIT", "CC-BY-4.0")
    counts = {"8.9": 6}
    archive = write_package(compile_model(model), tmp_path / "d.tar", model=model, terms=terms, misra=counts)
    package = unpack(archive, tmp_path / "d")
    licence = (package / "LICENSE").read_text()
    assert "SPDX-License-Identifier: MIT\n" in licence and "SPDX-License-Identifier: CC-BY-4.0\n" in licence
    assert "NOASSERTION" not in licence
    assert "version=2.3.4\nauthor=Ada <ada@example.org>\n" in (package / "library.properties").read_text()
    assert "VERSION 2.3.4 " in (package / "CMakeLists.txt").read_text()
    details = json.loads((package / "metadata.json").read_text())["utvm"]
    assert details["licenses"] == {"code": "MIT", "weights": "CC-BY-4.0"}
    assert details["misra"] == counts


def test_missing_terms_are_noassertion(package: Path) -> None:
    licence = (package / "LICENSE").read_text()
    assert licence.count("SPDX-License-Identifier: NOASSERTION\n") == 1
    assert "to settle them with the owner of the model.\n" in licence


def test_package_has_the_licence_of_the_code(package: Path) -> None:
    licence = (package / "LICENSE").read_text()
    assert "All other files\n    SPDX-License-Identifier: Apache-2.0\n" in licence
    assert licence.endswith((ROOT / "LICENSE").read_text().rstrip("\n") + "\n")


@pytest.mark.parametrize(
    ("field", "value"), [("version", "1.0"), ("version", "01.0.0"), ("author", " "), ("url", "a\nname=b")]
)
def test_invalid_terms_are_refused(field: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"a package's {field} cannot be"):
        Terms(**{field: value})


def test_invalid_examples_are_refused(tmp_path: Path) -> None:
    model = load(DIGITS)
    library = compile_model(model)
    for example in ([], [IMAGE[0]], [IMAGE.astype("int8")]):
        with pytest.raises(ConfigError, match=r"takes 1 inputs|the example for image is"):
            write_package(library, tmp_path / "d.tar", model=model, example=example)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_package(library, tmp_path / "nowhere" / "d.tar", model=model)


@pytest.mark.slow
def test_name_reserved_by_cmake_works(expected: np.ndarray, tmp_path: Path) -> None:
    model = load(DIGITS)
    archive = write_package(compile_model(model, name="test"), tmp_path / "t.tar", model=model, example=[IMAGE])
    package = unpack(archive, tmp_path / "t")
    call(["cmake", "-S", package, "-B", tmp_path / "build"])
    call(["cmake", "--build", tmp_path / "build", "--target", "test_model_example"])
    assert_output(call([tmp_path / "build" / "test_model_example"]), expected)

# SPDX-License-Identifier: Apache-2.0
"""Projects for other build systems: created, built by the platform's own tools, and run on virtual boards."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from models.tflite_reference import tflite_micro
from tests.cli.running import inv
from tests.portions import by_day
from utvm import boards
from utvm.paths import ROOT

MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"

# One for each architecture and platform in the daily tests, all boards in nightly ones.
_DAILY = [("cmake", "stm32f746"), ("bare", "riscv-spike:core=rv64"), ("cmake", "microbit")]
_ALL = [(platform, name) for platform in ("bare", "cmake") for name in boards.names() if name != "host"]


def _create(folder: Path, platform: str, board: str, *options: object) -> str:
    words = ("--model", MODEL, "--board", board, "--platform", platform, "--output", folder / "app", *options)
    completed = inv("project.create", *words)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def _picture(folder: Path) -> tuple[Path, bytes]:
    """Return an input, and TensorFlow Lite Micro's output for it."""
    path = folder / "x.npy"
    picture = np.random.default_rng(11).integers(-128, 128, (1, 8, 8, 1), np.int8)
    np.save(path, picture)
    ((expected,),) = tflite_micro(MODEL.read_bytes(), [[picture]])
    return path, expected.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("platform", "board"),
    [*_DAILY, *(pytest.param(*case, marks=pytest.mark.nightly) for case in _ALL if case not in _DAILY)],
)
def test_project_builds_and_computes_reference_outputs(tmp_path: Path, platform: str, board: str) -> None:
    tmp_path /= "a folder für Projekte"
    tmp_path.mkdir()
    picture, expected = _picture(tmp_path)
    _create(tmp_path, platform, board, "--input", picture)
    completed = inv("project.run", tmp_path / "app", "--virtual")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    report = json.loads((tmp_path / "app/build/reports/latest/report.json").read_text())
    assert (report["verdict"], report["board"]["id"].partition(":")[0]) == ("passed", board.partition(":")[0])
    (model,) = report["models"]
    assert model["outputs_sha256"] == hashlib.sha256(expected).hexdigest()
    assert (model["executor"], model["samples"]) == ("standing alone", 1)


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cmake", "bare"])
def test_project_is_built_in_another_folder(tmp_path: Path, platform: str) -> None:
    _create(tmp_path / "the source", platform, "mps2-an385")
    app, out = tmp_path / "the source" / "app", tmp_path / "out"
    before = sorted(app.rglob("*"))
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={app}/toolchain.cmake"
    commands: dict[str, list[list[object]]] = {
        "cmake": [["cmake", "-S", app, "-B", out, "-G", "Ninja", toolchain], ["cmake", "--build", out]],
        "bare": [["make", "-C", app, f"OUT={out}"]],
    }
    for command in commands[platform]:
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
    assert (out / "firmware.elf").is_file()
    assert sorted(app.rglob("*")) == before


@pytest.mark.slow
def test_own_board_is_found(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "utvm" / "boards" / "netduino2", tmp_path / "mine")
    data = tmp_path / "mine" / "board.yaml"
    data.write_text(data.read_text().replace("name: netduino2", "name: mine", 1))
    _create(tmp_path, "bare", f"{tmp_path}/mine")
    completed = inv("project.run", tmp_path / "app", cwd=tmp_path)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "VIRTUAL mine" in completed.stdout


@pytest.mark.slow
def test_silent_rtt_application_is_one_message(tmp_path: Path) -> None:
    _create(tmp_path, "bare", "microbit")
    (tmp_path / "app/app/main.c").write_text("void utvm_main(void) {}\nvoid utvm_fault_report(void) {}\n")
    completed = inv("project.run", tmp_path / "app")
    assert completed.returncode != 0
    assert "no utvm_rtt" in completed.stdout + completed.stderr
    assert "KeyError" not in completed.stdout + completed.stderr


@pytest.mark.slow
@pytest.mark.parametrize("board", by_day(["microbit", "mps2-an385"], "microbit"))
def test_output_is_printed_over_rtt_and_a_serial_line(tmp_path: Path, board: str) -> None:
    _create(tmp_path, "bare", board)
    completed = inv("firmware.flash", tmp_path / "app", "--monitor=8")
    assert completed.returncode == 0, completed.stderr
    lines = completed.stdout.splitlines()
    assert f"utvm: {board} is up" in lines
    assert any(re.fullmatch("utvm: end [0-9a-f]{8}", line) for line in lines)


def test_platforms_are_listed() -> None:
    platforms = json.loads(inv("project.create", "--json").stdout)["platforms"]
    assert sorted(platforms) == ["arduino", "bare", "cmake", "freertos", "zephyr"]
    assert list(platforms["zephyr"]["options"]) == ["board"]


@pytest.mark.slow
def test_wrong_output_fails_and_changed_library_is_refused(tmp_path: Path) -> None:
    _create(tmp_path, "bare", "mps2-an385")
    app = tmp_path / "app"
    with np.load(app / "expected.npz") as known:
        np.savez(app / "expected.npz", known["arr_0"] ^ 1)
    completed = inv("project.run", app)
    assert completed.returncode == 1
    assert "instead of" in completed.stdout
    header = next((app / "model" / "codegen" / "host" / "include").glob("*.h"))
    header.write_text(header.read_text() + "\n")
    completed = inv("project.build", app)
    assert completed.returncode == 2
    assert f"{header.name} is missing or was changed" in completed.stderr


# Headers of each kernel with the functions and types that a project uses, from its documentation.
_STUBS = {
    "zephyr/kernel.h": """
#include <stddef.h>
#include <stdint.h>
typedef struct k_thread *k_tid_t;
uint32_t k_cycle_get_32(void);
k_tid_t k_current_get(void);
int k_thread_stack_space_get(const struct k_thread *thread, size_t *unused);
void k_panic(void);
#define CONFIG_MAIN_STACK_SIZE 8192
""",
    "zephyr/sys/printk.h": "void printk(const char *format, ...);",
    "FreeRTOS.h": """
#include <stddef.h>
#include <stdint.h>
#include "FreeRTOSConfig.h"
typedef uint32_t StackType_t;
typedef struct { int hidden; } StaticTask_t;
""",
    "task.h": """
typedef struct tskTaskControlBlock *TaskHandle_t;
#define tskIDLE_PRIORITY 0u
TaskHandle_t xTaskCreateStatic(void (*code)(void *), const char *name, uint32_t depth, void *parameters,
                               unsigned long priority, StackType_t *stack, StaticTask_t *task);
void vTaskSuspend(TaskHandle_t task);
void vTaskStartScheduler(void);
void vApplicationGetIdleTaskMemory(StaticTask_t **task, StackType_t **stack, configSTACK_DEPTH_TYPE *words);
void vApplicationTickHook(void);
""",
    "Arduino.h": """
#include <stddef.h>
#include <stdint.h>
struct Stub { void begin(unsigned long); size_t write(const uint8_t *, size_t); explicit operator bool(); };
extern Stub Serial;
unsigned long micros();
#define F_CPU 64000000u
""",
}


def _compile(app: Path, stubs: Path, files: list[Path], folders: list[str]) -> None:
    """Compile C or C++ of a project against the stubs, with warnings as errors."""
    for file in files:
        sketch = file.suffix == ".ino"
        words = ["arm-none-eabi-g++", "-std=c++11", "-x", "c++", "-include", "Arduino.h"]
        words = words if sketch else ["arm-none-eabi-gcc", "-std=gnu99"]
        include = [f"-I{app / folder}" for folder in folders]
        flags = ["-mcpu=cortex-m4", "-mthumb", "-Wall", "-Wextra", "-Werror", f"-I{stubs}", *include]
        config = [] if (app / "src").exists() else ["-include", app / "app" / "config.h"]
        completed = subprocess.run(
            [*words, *flags, *config, "-fsyntax-only", file], capture_output=True, text=True, check=False
        )
        assert completed.returncode == 0, completed.stderr


_KERNELS = {
    "zephyr": ["--option", "board=nucleo_f746zg"],
    "freertos": [],
    "arduino": ["--option", "fqbn=arduino:mbed_nano:nano33ble"],
}


@pytest.mark.slow
@pytest.mark.parametrize("platform", _KERNELS)
def test_kernel_port_compiles_against_stubs(tmp_path: Path, platform: str) -> None:
    _create(tmp_path, platform, "stm32f746", *_KERNELS[platform])
    app, stubs = tmp_path / "app", tmp_path / "stubs"
    for name, text in _STUBS.items():
        (stubs / name).parent.mkdir(parents=True, exist_ok=True)
        (stubs / name).write_text(text)
    public = "model/codegen/host/include"
    if platform == "arduino":
        # Arduino compiles the sketch's folder and src/; only a library has a folder of headers.
        files, folders = [app / "app.ino", *sorted((app / "src").glob("*.c"))], ["model/src"]
        assert not (app / "runtime").exists()
    else:
        files = [*(app / "app").glob("*.c"), *(app / "runtime").rglob("*.c")]
        folders = ["app", "runtime/include", "runtime/bare_metal", "runtime/cortex_m", public]
        cmake = (app / "CMakeLists.txt").read_text()
        assert [file for file in files if str(file.relative_to(app)) not in cmake] == []
    assert len(files) >= 7
    if platform == "freertos":
        # The kernel always compiles stream_buffer.c, which needs this setting.
        assert "INCLUDE_xTaskGetCurrentTaskHandle 1" in (app / "app" / "FreeRTOSConfig.h").read_text()
    _compile(app, stubs, files, folders)


# A fake Zephyr: the functions that are called, as in cmake/modules/extensions.cmake, and the defaults of
# zephyr/module.yml for modules. Settings in prj.conf are used unchecked.
_ZEPHYR = """
enable_language(C)
set(CMAKE_C_STANDARD 99)
add_library(zephyr_interface INTERFACE)
target_include_directories(zephyr_interface INTERFACE "$ENV{ZEPHYR_BASE}/include")
add_library(app STATIC)
target_link_libraries(app PUBLIC zephyr_interface)
function(zephyr_include_directories)
  foreach(folder ${ARGN})
    target_include_directories(zephyr_interface INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
  endforeach()
endfunction()
macro(zephyr_library_named name)
  set(ZEPHYR_CURRENT_LIBRARY ${name})
  add_library(${name} STATIC)
  target_link_libraries(${name} PUBLIC zephyr_interface)
  target_link_libraries(app PUBLIC ${name})
endmacro()
function(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
function(zephyr_library_compile_options)
  target_compile_options(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/prj.conf settings REGEX "^CONFIG_")
foreach(setting ${settings})
  string(REGEX MATCH "^([^=]*)=(.*)$" found ${setting})
  set(${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
endforeach()
foreach(module ${ZEPHYR_EXTRA_MODULES})
  add_subdirectory(${module}/zephyr modules/${module})
endforeach()
"""


@pytest.mark.slow
def test_zephyr_project_builds_with_a_fake_package(tmp_path: Path) -> None:
    base = tmp_path / "stand in"
    config = base / "share" / "zephyr-package" / "cmake" / "ZephyrConfig.cmake"
    for name, text in _STUBS.items():
        (base / "include" / name).parent.mkdir(parents=True, exist_ok=True)
        (base / "include" / name).write_text(text)
    config.parent.mkdir(parents=True)
    config.write_text(_ZEPHYR)
    _create(tmp_path / "a folder", "zephyr", "stm32f746", "--option", "board=nucleo_f746zg")
    for words in (["-S", tmp_path / "a folder" / "app", "-B", tmp_path / "out"], ["--build", tmp_path / "out"]):
        completed = subprocess.run(
            ["cmake", *words],
            env={**os.environ, "ZEPHYR_BASE": str(base), "CC": "gcc"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
    objects = {path.name for path in (tmp_path / "out").rglob("*.o")}
    assert {"digits_int8.c.o", "digits_int8_operators.c.o", "main.c.o", "port.c.o", "programs.c.o"} <= objects
    assert "CONFIG_FPU=y" in (tmp_path / "a folder" / "app" / "prj.conf").read_text()


@pytest.mark.nightly
def test_zephyr_project_runs_with_zephyr(tmp_path: Path) -> None:
    if not os.environ.get("ZEPHYR_BASE") or not shutil.which("west"):
        pytest.skip("Zephyr is not here: ZEPHYR_BASE is not set, or there is no west")
    _create(tmp_path, "zephyr", "mps2-an385", "--option", "board=mps2/an385")
    completed = inv("project.run", tmp_path / "app")
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("board", ["stm32f746", "stm32f407", "mps2-an385", "microbit", "mps2-an505", "mps3-an547"])
def test_freertos_task_runs_with_its_kernel(tmp_path: Path, board: str) -> None:
    if not os.environ.get("FREERTOS_KERNEL_PATH"):
        pytest.skip("FreeRTOS is not here: FREERTOS_KERNEL_PATH is not set")
    picture, expected = _picture(tmp_path)
    counts = []
    for platform in ("bare", "freertos"):
        _create(tmp_path / platform, platform, board, "--input", picture)
        completed = inv("project.run", tmp_path / platform / "app", "--virtual")
        assert completed.returncode == 0, completed.stdout + completed.stderr
        report = json.loads((tmp_path / platform / "app/build/reports/latest/report.json").read_text())
        (model,) = report["models"]
        assert model["outputs_sha256"] == hashlib.sha256(expected).hexdigest()
        counts.append(model["instructions"])
    # The kernel's ticks are counted, too; they come at most every few thousand instructions.
    assert counts[0] <= counts[1] < 1.2 * counts[0]


@pytest.mark.nightly
def test_sketch_builds_with_arduino_cli(tmp_path: Path) -> None:
    if not shutil.which("arduino-cli"):
        pytest.skip("arduino-cli is not installed")
    _create(tmp_path, "arduino", "nucleo-l4r5zi", "--option", "fqbn=STMicroelectronics:stm32:Nucleo_144")
    completed = inv("project.build", tmp_path / "app")
    assert completed.returncode == 0, completed.stdout + completed.stderr


_OWN = """
says: a platform of our own
runtime: own
needs: {no-such-program: buy it}
build: [["no-such-program", "{{ options.speed }}"]]
elf: "{{ name }}.elf"
options: {speed: how fast}
"""


def test_own_folder_is_a_platform(tmp_path: Path) -> None:
    (tmp_path / "mine" / "__pycache__").mkdir(parents=True)
    (tmp_path / "mine" / "__pycache__" / "suite.cpython-311.pyc").write_bytes(b"\xa7")
    (tmp_path / "mine" / "platform.yaml").write_text(_OWN)
    (tmp_path / "mine" / "PROJECT.txt.j2").write_text("{{ name }} of {{ library.arena_bytes }} at {{ options.speed }}")
    _create(tmp_path, f"{tmp_path}/mine", "stm32f746", "--option", "speed=3")
    app = tmp_path / "app"
    assert (app / "app.txt").read_text().endswith(" at 3")
    assert json.loads((app / "project.json").read_text())["build"] == [["no-such-program", "3"]]
    assert not (app / "board").exists()
    completed = inv("project.build", app)
    assert completed.returncode == 3
    assert "no-such-program is not installed" in completed.stderr
    assert "buy it" in completed.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--platform", "cmake"], "--output FOLDER"),
        (["--platform", "basic", "--output", "app"], "platforms: arduino, bare, cmake"),
        (["--platform", "cmake", "--output", "app", "--board", "host"], "is a process on this computer"),
        (["--platform", "cmake", "--output", "app", "--option", "a=1"], "no option a"),
        (["--platform", "cmake", "--output", "app", "--option", "a"], "NAME=VALUE"),
        (["--platform", "cmake", "--output", "."], "is not empty"),
        (["--platform", "freertos", "--output", "app", "--board", "pynq-z1"], "is not for a cortex-a9-neon"),
    ],
)
def test_usage_error_is_one_message(words: list[object], message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.c").write_text("")
    board = [] if "--board" in words else ["--board", "stm32f746"]
    completed = inv("project.create", "--model", MODEL, *board, *words, cwd=tmp_path)
    assert completed.returncode == 2, completed.stdout
    assert message in completed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.c"]


@pytest.mark.parametrize(("text", "message"), [("[", "is not valid JSON"), ("{}", "version"), (None, "project.json")])
def test_folder_without_a_project_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "project.json").write_text(text)
    completed = inv("project.run", tmp_path)
    assert completed.returncode == 2
    assert message in completed.stderr


# Commands that are executed only where these are: the SDKs of Arduino and Zephyr, and the kernel, are in no registry.
_NOT_HERE = {"arduino": "arduino-cli", "zephyr": "ZEPHYR_BASE", "freertos": "FREERTOS_KERNEL_PATH"}


def _is_here(tool: str) -> bool:
    return tool in os.environ or shutil.which(tool) is not None


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["arduino", "bare", "cmake", "freertos", "zephyr"])
def test_commands_of_a_readme_build_the_project(tmp_path: Path, platform: str) -> None:
    options: dict[str, list[object]] = {
        "zephyr": ["--option", "board=mps2/an385"],
        "arduino": ["--option", "fqbn=arduino:sam:arduino_due_x"],
    }
    _create(tmp_path, platform, "mps2-an385", *options.get(platform, []))
    app = tmp_path / "app"
    text = (app / "README.md").read_text(encoding="utf-8")
    for folder in re.findall(r"`([\w./]+/)`", "".join(line for line in text.splitlines() if line.startswith("| `"))):
        assert (app / folder).is_dir(), folder
    commands = re.findall(r"(?m)^    (.+)$", text)
    assert commands and not re.search(r"[{}]", text)
    tool = _NOT_HERE.get(platform, "")
    if tool and not _is_here(tool):
        assert commands[0].startswith(("arduino-cli compile", "west build -b mps2/an385", "cmake -S . -B build"))
        return
    for command in commands:
        subprocess.run(command, shell=True, check=True, cwd=app, capture_output=True, timeout=600)
    assert (app / json.loads((app / "project.json").read_text())["elf"]).is_file()

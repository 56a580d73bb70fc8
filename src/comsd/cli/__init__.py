"""The `comsd` command: parses, calls the functions of the Python API, prints."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from comsd.cli import console
from comsd.cli.console import fail, say
from comsd.config import choose
from comsd.errors import InputError, Interrupted, RunError
from comsd.training import signals

USAGE = """\
comsd: unsupervised skill discovery

  comsd pretrain METHOD --env ENV ...   discover skills; --preset, --run, ...
  comsd finetune RUN --task TASK ...    go on from a skill with a task's reward
  comsd finetune --scratch --task TASK  the same without pre-training
  comsd combine RUN --task TASK ...     learn which skill to use when
  comsd resume RUN [--steps N]          go on where it stopped, or beyond
  comsd evaluate RUN [--json]           measure and draw what the skills do
  comsd analyse RUN [--video]           skills one by one: tables, poses, video
  comsd explore RUN [--out FILE]        one HTML file where the skills act live
  comsd reproduce EXHIBIT ...           a table or figure of the paper: its runs
                                        and a report
  comsd sweep METHOD --env ENV SETTING=VALUES ...
                                        many settings, ranked
  comsd report DIR                      one page about a run, or about many
  comsd check METHOD                    does a method keep the contract? of
                                        --method-file FILE: all of its methods
  comsd methods                         the methods
  comsd envs                            the environments and their tasks
  comsd config METHOD --env ENV         every setting, its value and its source
  comsd doctor                          what works here, and what to install

  comsd COMMAND --help                  what each option means
  comsd COMMAND --method-file FILE      with methods of a Python file of yours
  comsd COMMAND --env-file FILE         with its environments (Gymnasium API)
  comsd COMMAND --env-package PACKAGE   with those that gym:PACKAGE:ID names
  comsd COMMAND --reward-file FILE      with its function
                                        reward(obs, action, next_obs, info)

ENV is one of `comsd envs`, gym:ID, gym:PACKAGE:ID or dmc:DOMAIN-TASK.
"""

MODULES = {  # and the commands whose functions are there; loaded when one is called
    "train": ["pretrain", "finetune", "combine", "resume", "config"],
    "results": ["evaluate", "analyse", "explore"],
    "reproduce": ["reproduce", "report"],
    "sweep": ["sweep"],
    "check": ["check"],
    "lists": ["methods", "envs", "doctor"],
}
COMMANDS = {command: module for module, commands in MODULES.items() for command in commands}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `comsd` command."""
    if argv is None:  # a process of its own
        signals.exit_process = console.exit_process
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
        dispatch(list(sys.argv[1:] if argv is None else argv))


def dispatch(argv: list[str]) -> None:
    """Carry out a command; every failure is one sentence and an exit code."""
    try:
        if not argv or argv[0] in ("-h", "--help"):
            print(USAGE)
            return
        if argv[0] == "--version":
            print(version("comsd"))
            return
        argv = console.run_user_code(argv)
        command = argv[0] if argv else ""
        module = import_module(f"comsd.cli.{choose('command', command, COMMANDS)}")
        getattr(module, command)(argv[1:])
    except InputError as error:
        fail(str(error), 2)
    except RunError as error:
        fail(str(error), 1)
    except Interrupted as stop:
        fail(str(stop), 128 + stop.signal)
    except KeyboardInterrupt:
        fail("interrupted; what was saved is kept, and `comsd resume` continues a run", 130)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        fail(f"{error.filename}: {error.strerror}", 2)
    except BrokenPipeError:  # of `comsd ... | head`, say
        sys.stderr.close()
    except OSError as error:  # a full disk, say
        fail(f"{error.filename or 'output'}: {error.strerror}", 1)

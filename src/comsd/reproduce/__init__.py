"""The paper's exhibits from one command: plan the runs, carry them out, report."""

from comsd.reproduce.executor import Executor, LocalExecutor, execute
from comsd.reproduce.exhibits import EXHIBITS, Exhibit, exhibit
from comsd.reproduce.page import write_report
from comsd.reproduce.plan import Job, Plan, make_plan

__all__ = [
    "EXHIBITS",
    "Executor",
    "Exhibit",
    "Job",
    "LocalExecutor",
    "Plan",
    "execute",
    "exhibit",
    "make_plan",
    "write_report",
]

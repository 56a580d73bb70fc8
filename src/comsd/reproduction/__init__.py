"""The paper's exhibits from one command: plan the runs, carry them out, report."""

"""The names of all files, folders and environment variables of a run directory.

``sitecustomize.py`` and ``guardian.py`` run before or without this package, so they repeat the
names that they need.
"""

from __future__ import annotations

RUN_DIR_VARIABLE = "REPROKIT_RUN_DIR"
"""The run directory; if it is not set, the agent does nothing."""
RUN_ID_VARIABLE = "REPROKIT_RUN_ID"
"""The id that every process of a run inherits, so that all of them can be ended."""
GPU_VARIABLE = "REPROKIT_RUN_GPU"
"""The simulated GPU, as JSON."""
WATCHDOG_VARIABLE = "REPROKIT_WATCHDOG_PID"
"""The process that may attach to read stacks."""
LOGS_VARIABLE = "REPROKIT_LOGS"
"""The TORCH_LOGS that are written to a file."""
RESULTS_VARIABLE = "REPROKIT_RESULTS"
"""The role of a run whose results are recorded."""
RESULTS_DIR_VARIABLE = "REPROKIT_RESULTS_DIR"
OVERRIDES_VARIABLE = "REPROKIT_OVERRIDES"
"""The settings that are different for this compile, as JSON."""
CACHES_VARIABLE = "REPROKIT_RUN_CACHES"
"""If it is set, look-ups in the caches of compiled graphs are journaled."""
OUR_VARIABLES = (
    "REPROKIT_RUN_",
    "REPROKIT_WATCHDOG_",
    LOGS_VARIABLE,
    RESULTS_VARIABLE,
    OVERRIDES_VARIABLE,
)
"""The beginnings of the variables that reprokit sets for the target. Other variables that begin
with ``REPROKIT_`` are not ours.
"""

AGENT_FOLDER = "agent"
CACHE_FOLDER = "cache"
CACHES_FOLDER = "caches"
"""The caches of the stages of ``--caches``, and their runs."""
EAGER_FOLDER = "eager"
"""The run without torch.compile."""
FOLLOW_UP_FOLDER = "escalate"
GRAPHS_FOLDER = "graphs"
JOURNAL_FOLDER = "journal"
KERNELS_FOLDER = "kernels"
LOGS_FOLDER = "logs"
PACK_FOLDER = "pack"
STACKS_FOLDER = "stacks"
STEPS_FOLDER = "steps"
TRACE_FOLDER = "trace"

RUN_FILE = "run.json"
"""The request, and how the run ended."""
SPEC_FILE = "spec.json"
"""The ``RunSpec`` of the agent."""
AGENT_PROBLEMS_FILE = "agent-problems.txt"
SAMPLES_FILE = "samples.csv"
EVIDENCE_FILE = "evidence.json"
STDOUT_FILE = "stdout.txt"
STDERR_FILE = "stderr.txt"
GRAPH_FILE = "graph.py"
COMPILED_FILE = "compiled.py"
INPUTS_FILE = "inputs.json"
VALUES_FILE = "values.json"
PRIVATE_VALUES_FILE = "values.private"
"""What is known about the values of a graph's inputs. They are the user's data: a pack takes no
file with this suffix.
"""
OUTSIDE_VALUES_FILE = "outside.private"
"""The values that a program reads from outside, one description a line."""
GROWTH_FILE = "growth.json"
STEPS_FILE = "steps.jsonl"
"""What each step of the capture cost."""
LOG_FILE = "reprokit.log"
"""The log of the host."""
KERNELS_FILE = "kernels.json"
SIMULATED_FILE = "simulated.json"
ABLATION_FILE = "ablation.json"
MINIMIZE_FILE = "minimize.json"
PROOF_FILE = "proof.json"
OBSERVATION_FILE = "observation.json"
RANKS_FILE = "ranks.json"
"""Where each rank was, for ``reprokit merge``."""
VERDICT_FILE = "verdict.json"
SIGNATURE_FILE = "signature.json"
ENVIRONMENT_FILE = "environment.json"
GPU_FILE = "gpu.json"
COMMAND_FILE = "command.txt"
COLLECT_ENV_FILE = "collect_env.txt"
REPORT_DATA_FILE = "report.json"
REPORT_FILE = "report.html"
SPEEDSCOPE_FILE = "stacks.speedscope.json"
TRACE_EVENTS_FILE = "timeline.perfetto.json"
ISSUE_FILE = "issue.md"
DESCRIBE_FILE = "issue/describe.md"
TITLE_FILE = "issue/title.txt"
CLAIMS_FILE = "issue/claims.json"
MANIFEST_FILE = "manifest.json"
REPRO_FILE = "repro.py"
CANDIDATE_FILE = "candidate.py"
ORIGINAL_FILE = "original.py"
"""The program before its reduction."""

"""What the demo found, as one object and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from headrace import __version__
from headrace.cli.corpus import Corpus
from headrace.cli.figures import Figures
from headrace.cli.job import Job
from headrace.cli.proof import Proof
from headrace.cli.trained import Trained


@dataclass(frozen=True, slots=True)
class Result:
    """What came out.

    Attributes:
        job: What was trained.
        corpus: On what.
        is_corpus_reused: Whether the shards were there already.
        first: The process that was killed.
        second: The process that went on.
        proof: What was compared.
        figures: What was measured.
    """

    job: Job
    corpus: Corpus
    is_corpus_reused: bool
    first: Trained
    second: Trained
    proof: Proof
    figures: Figures

    def to_json(self) -> dict[str, Any]:
        """Give the facts and figures, without the single steps."""
        made = asdict(self.corpus)
        return {
            "headrace": __version__,
            "is_identical": self.proof.is_identical,
            "steps": self.job.steps,
            "checkpoint_step": self.second.opened.start,
            "killed_after_steps": len(self.first.steps),
            "exit_codes": [self.first.exit_code, self.second.exit_code],
            "corpus": {
                "files": made["files"],
                "text_bytes": made["text_bytes"],
                "tokens": made["tokens"],
                "shards": made["shards"],
                "is_reused": self.is_corpus_reused,
            },
            "parts": [
                {**asdict(part), "is_identical": part.is_identical} for part in self.proof.parts
            ],
            "verified_steps": self.proof.verified_steps,
            "redone": {**asdict(self.proof.redone), "agrees": self.proof.redone.agrees},
            "figures": asdict(self.figures),
        }

"""For tests: contract suites of sources, datasets and samplers, fakes, and a check of coverage."""

from headrace.testing.coverage import Coverage, check_coverage

__all__ = ["Coverage", "check_coverage"]

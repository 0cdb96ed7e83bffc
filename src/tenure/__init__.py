"""Tenure: who holds which GPU, until when, and who pays.

This module holds the version and imports nothing, so that `import tenure` costs nothing.
"""

__version__ = "0.1.0"

"""Mathematical functions of data nodes, as in ``nvidia.dali.math``; see `dali_like.graph.math_functions`."""

from dali_like.graph.math_functions import *  # noqa: F403
from dali_like.graph.math_functions import __all__  # noqa: F401

"""Importing this module puts this library's loader in the place of PyTorch's, as ``dali-like run`` does.

It is for programs that ``dali-like run`` cannot start::

    import dali_like.autoload  # before PyTorch, if possible

See `dali_like.running`, and docs/try-it.md.
"""

from dali_like.running.hook import install

install()

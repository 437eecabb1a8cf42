"""The one function of python-prctl that tini's suite calls, which saves building that package."""
import ctypes
import os

PR_SET_CHILD_SUBREAPER = 36


def set_child_subreaper(on):
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

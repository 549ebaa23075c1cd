# SPDX-License-Identifier: Apache-2.0
"""Queries of machine and library: 15 functions of zDNN, in the innermost `with session:`.

The functions `is_nnpa_*_installed` answer from the library's query result, which only `init` and
`refresh_nnpa_query_result` renew. Without NNPA it is all zeros.
"""

from nnpa_client._values.constants import ZDNN_VERNUM, ZDNN_VERSION
from nnpa_client.session import current_session, entered_session

__all__ = [
    "get_library_version",
    "get_library_version_str",
    "get_max_for_dim",
    "get_max_runnable_version",
    "get_nnpa_max_dim_idx_size",
    "get_nnpa_max_tensor_size",
    "init",
    "is_nnpa_conversion_installed",
    "is_nnpa_datatype_installed",
    "is_nnpa_function_installed",
    "is_nnpa_installed",
    "is_nnpa_layout_fmt_installed",
    "is_nnpa_parmblk_fmt_installed",
    "is_version_runnable",
    "refresh_nnpa_query_result",
]


def init() -> None:
    """Have the library query the machine anew. Source: zDNN API Reference 1.2.0, zdnn_init."""
    current_session().init()


def is_nnpa_installed() -> bool:
    """Return True if the machine has the accelerator; asks the machine itself.

    Source: zDNN API Reference 1.2.0, zdnn_is_nnpa_installed.
    """
    return current_session().is_nnpa_installed()


def is_nnpa_function_installed(count: int, *function_codes: int) -> bool:
    """Return True if the first `count` of the function codes (NNPA_ADD, ...) are all installed.

    Source: zDNN API Reference 1.2.0, zdnn_is_nnpa_function_installed.
    """
    return current_session().is_nnpa_function_installed(count, *function_codes)


def is_nnpa_parmblk_fmt_installed(count: int, *format_codes: int) -> bool:
    """Return True if the first `count` formats (NNPA_PARMBLKFORMAT_*) are all installed.

    Source: zDNN API Reference 1.2.0, zdnn_is_nnpa_parmblk_fmt_installed.
    """
    return current_session().is_nnpa_parmblk_fmt_installed(count, *format_codes)


def is_nnpa_datatype_installed(types_bitmask: int) -> bool:
    """Return True if all types of a mask of QUERY_DATATYPE_* are installed; 0 is true.

    Source: zDNN API Reference 1.2.0, zdnn_is_nnpa_datatype_installed.
    """
    return current_session().is_nnpa_datatype_installed(types_bitmask)


def is_nnpa_layout_fmt_installed(layout_bitmask: int) -> bool:
    """Return True if all layout formats of a mask of QUERY_LAYOUTFMT_* are installed; 0 is true.

    Source: zDNN API Reference 1.2.0, zdnn_is_nnpa_layout_fmt_installed.
    """
    return current_session().is_nnpa_layout_fmt_installed(layout_bitmask)


def is_nnpa_conversion_installed(type: int, format_bitmask: int) -> bool:  # noqa: A002 - zDNN's name
    """Return True if NNPA_DATATYPE_1 converts from and to all formats of a mask of QUERY_BFPFMT_*.

    Source: zDNN API Reference 1.2.0, zdnn_is_nnpa_conversion_installed.
    """
    return current_session().is_nnpa_conversion_installed(type, format_bitmask)


def get_nnpa_max_dim_idx_size() -> int:
    """Return the largest size of any dimension, elements.

    Source: zDNN API Reference 1.2.0, zdnn_get_nnpa_max_dim_idx_size.
    """
    return current_session().get_nnpa_max_dim_idx_size()


def get_max_for_dim(dimension: int) -> int:
    """Return the largest size of dimension 1 to 4, elements; other dimensions give 0.

    Source: zDNN API Reference 1.2.0, zdnn_get_max_for_dim.
    """
    return current_session().get_max_for_dim(dimension)


def get_nnpa_max_tensor_size() -> int:
    """Return the largest size of a ztensor, bytes.

    Source: zDNN API Reference 1.2.0, zdnn_get_nnpa_max_tensor_size.
    """
    return current_session().get_nnpa_max_tensor_size()


def refresh_nnpa_query_result() -> None:
    """Have the library query the machine anew.

    Raises ZdnnError: ZDNN_UNAVAILABLE_FUNCTION on a machine without NNPA.
    Source: zDNN API Reference 1.2.0, zdnn_refresh_nnpa_query_result.
    """
    current_session().refresh_nnpa_query_result()


def is_version_runnable(ver_num: int) -> bool:
    """Return True if code for a zDNN version, 0x00MMmmpp, can run on library and machine.

    Source: zDNN API Reference 1.2.0, zdnn_is_version_runnable.
    """
    return current_session().is_version_runnable(ver_num)


def get_max_runnable_version() -> int:
    """Return the highest zDNN version that can run on library and machine, 0x00MMmmFF, or 0.

    Source: zDNN API Reference 1.2.0, zdnn_get_max_runnable_version.
    """
    return current_session().get_max_runnable_version()


def get_library_version() -> int:
    """Return the version of the session's zDNN, 0x00MMmmpp; outside a session, 0x00010200.

    Source: zDNN API Reference 1.2.0, zdnn_get_library_version.
    """
    session = entered_session()
    if session is None:
        return ZDNN_VERNUM
    major, minor, patch = (int(part) for part in session.library.split("."))
    return major << 16 | minor << 8 | patch


def get_library_version_str() -> str:
    """Return the version of the session's zDNN as text; outside a session, "1.2.0".

    Source: zDNN API Reference 1.2.0, zdnn_get_library_version_str.
    """
    session = entered_session()
    return ZDNN_VERSION if session is None else session.library

# SPDX-License-Identifier: Apache-2.0
"""zDNN 1.2.0: one function per C function, without the prefix, and the constants of `zdnn.h`.

Parameters are in C order. An output stands last and may be left out: it is created. Where C writes
through a pointer, Python returns. A status that is an error is raised (`ZdnnError`), a warning is
warned of (`ZdnnWarning`), ZDNN_OK is silent. `work_area` and `save_area` keep their places and
take None.

    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_NHWC, zdnn.FP32, 1, 32, 32, 3)
    tfrmd = zdnn.generate_transformed_desc(pre)
    a = session.init_ztensor_with_malloc(pre, tfrmd)
    zdnn.transform_ztensor(a, data)
    c = zdnn.add(a, a)
    zdnn.transform_origtensor(c)
    zdnn.free_ztensor_buffer(a)
"""

from nnpa_client._values.constants import *  # noqa: F403 - every name is public
from nnpa_client.descriptors import *  # noqa: F403 - every name is public
from nnpa_client.zdnn._activation import *  # noqa: F403 - every name is public
from nnpa_client.zdnn._convolution import *  # noqa: F403 - every name is public
from nnpa_client.zdnn._elementwise import *  # noqa: F403 - every name is public
from nnpa_client.zdnn._environment import *  # noqa: F403 - every name is public
from nnpa_client.zdnn._lifecycle import *  # noqa: F403 - every name is public
from nnpa_client.zdnn._matmul import *  # noqa: F403 - every name is public
from nnpa_client.zdnn._normalization import *  # noqa: F403 - every name is public
from nnpa_client.zdnn._recurrent import *  # noqa: F403 - every name is public
from nnpa_client.zdnn._statuses import *  # noqa: F403 - every name is public

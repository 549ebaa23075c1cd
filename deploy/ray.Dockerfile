# SPDX-License-Identifier: Apache-2.0
# Ray with nnpa, for kubernetes/scaled/ray: deploy/README.md. Context: a folder with wheels/. BASE is
# Ray's own image of the version in raycluster.yaml; give it by digest.
ARG BASE=rayproject/ray:2.60.0-py312
# hadolint ignore=DL3006
FROM ${BASE}
COPY wheels /wheels
# Kernels are compiled for the processors of the machine that builds, unless NUMBA_CPU_NAME says others.
ENV NUMBA_CACHE_DIR=/home/ray/kernels
# By path: a package of this name on an index is not ours.
RUN pip install --no-cache-dir "$(echo /wheels/nnpa-*.whl)[server,onnx,data]" \
 && nnpa-server --compile-kernels

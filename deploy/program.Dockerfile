# SPDX-License-Identifier: Apache-2.0
# A C program with libzdnn, beside the server: deploy/README.md. Context: program and libzdnn.so.0.
ARG BASE=debian:bookworm-slim
# hadolint ignore=DL3006
FROM ${BASE}
COPY libzdnn.so.0 /usr/local/lib/
COPY program /usr/local/bin/
ENV LD_LIBRARY_PATH=/usr/local/lib
USER 10001:10001
ENTRYPOINT ["program"]

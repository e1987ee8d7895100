# tacit for the CPU:   docker build -t tacit .
# for an NVIDIA GPU:   docker build -t tacit:cuda --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .
# A run:               docker run --rm --network none --user "$(id -u):$(id -g)" -v "$PWD:/data" tacit run config.yaml
# The driver of the GPU comes from the host (--gpus all); torch's wheels bring the libraries of CUDA. BASE may be any image with
# Python from 3.11 to 3.13, such as one with CUDA of your own.
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /build
COPY constraints.txt ./
RUN python -m pip install -c constraints.txt --index-url "${TORCH_INDEX}" --extra-index-url https://pypi.org/simple torch
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m pip install -c constraints.txt . && rm -rf /build
# Nothing is fetched at run time: models are folders that are mounted.
ENV HF_HUB_OFFLINE=1 HOME=/tmp MPLCONFIGDIR=/tmp/matplotlib
WORKDIR /data
ENTRYPOINT ["tacit"]
CMD ["--help"]

# The servers that a team shares, for compose.yaml: what `make cluster` starts, in an image.
FROM python:3.11-slim-bookworm
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends postgresql \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home symposium && install -d -o symposium -g symposium /data
WORKDIR /opt/symposium
COPY requirements.lock requirements-team.lock ./
# The servers train nothing, hence no torch. The locks name everything, so nothing else is resolved.
RUN grep -v '^torch==' requirements.lock > servers.lock \
 && pip install --quiet --no-cache-dir --no-deps -r servers.lock \
 && pip install --quiet --no-cache-dir --no-deps --require-hashes -r requirements-team.lock
COPY . .
RUN pip install --quiet --no-cache-dir --no-deps .
USER symposium
WORKDIR /data
ENTRYPOINT ["symposium", "cluster"]

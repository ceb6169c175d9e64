# SPDX-License-Identifier: Apache-2.0
"""The Docker engine at ``DOCKER_HOST``: connect, load an image, remove a container."""

import contextlib
import http
import os
import threading
from collections.abc import Iterator

import docker
import docker.errors
import requests

from utvm.environment.image import Image, write_archive
from utvm.errors import ProvisionError

_REQUEST_TIMEOUT = 600  # Seconds; a busy machine loads an image slowly.


@contextlib.contextmanager
def connect() -> Iterator[docker.DockerClient]:
    address = os.environ.get("DOCKER_HOST", "/var/run/docker.sock")
    try:
        client = docker.from_env(timeout=_REQUEST_TIMEOUT)
        try:
            client.ping()
            yield client
        finally:
            client.close()
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise _translate(error, address) from error


def has_image(client: docker.DockerClient, image: Image) -> bool:
    """True if the engine has exactly this image under its tag."""
    try:
        loaded = client.images.get(image.tags[0])
    except docker.errors.ImageNotFound:
        return False
    # An image's id is its manifest's in containerd's store, and its configuration's elsewhere.
    return loaded.id in (image.digest, image.config)


def has_tag(client: docker.DockerClient, name: str) -> bool:
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        return False
    return True


def load_image(client: docker.DockerClient, image: Image) -> None:
    read, write = os.pipe()

    def send() -> None:
        # If the engine refuses the image, it closes the pipe; its error is raised below.
        with contextlib.suppress(BrokenPipeError), os.fdopen(write, "wb") as output:
            write_archive(image.layout, output)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with os.fdopen(read, "rb") as archive:
            client.images.load(archive)
    finally:
        sender.join()
    if not has_image(client, image):
        raise ProvisionError(f"the engine loaded something else than {image.tags[0]} ({image.config})")


def remove_container(client: docker.DockerClient, name: str) -> bool:
    """Remove a container, running or not; False if there is none of that name."""
    try:
        client.containers.get(name).remove(force=True)
    except docker.errors.NotFound:
        return False
    except docker.errors.APIError as error:
        # CONFLICT: another process is removing it.
        if error.status_code != http.HTTPStatus.CONFLICT:
            raise
    return True


def _translate(error: Exception, address: str) -> ProvisionError:
    text = str(error)
    if "Permission denied" in text or "PermissionError" in text:
        return ProvisionError(
            f"the Docker engine at {address} does not let you in",
            "join its group (sudo usermod -aG docker $USER, then log in anew), or use a rootless engine",
        )
    if any(word in text for word in ("Connection refused", "ConnectionRefused", "No such file", "FileNotFound")):
        return ProvisionError(
            f"no Docker engine answers at {address}",
            "start it (sudo systemctl start docker), or set DOCKER_HOST",
        )
    if "no space left on device" in text:
        return ProvisionError("the Docker engine's disk is full", "free space: docker system prune")
    return ProvisionError(
        f"the Docker engine at {address}: {text.splitlines()[0] if text else type(error).__name__}"
    )

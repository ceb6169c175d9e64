# SPDX-License-Identifier: Apache-2.0
"""The Docker engine: finding it, handing it an image, removing what runs. ``DOCKER_HOST`` says where it is."""

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

_PATIENCE = 600  # Seconds that one request may take: a busy machine loads an image slowly.


@contextlib.contextmanager
def connect() -> Iterator[docker.DockerClient]:
    """Connect to the engine."""
    place = os.environ.get("DOCKER_HOST", "/var/run/docker.sock")
    try:
        client = docker.from_env(timeout=_PATIENCE)
        try:
            client.ping()
            yield client
        finally:
            client.close()
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise _explained(error, place) from error


def has_image(client: docker.DockerClient, image: Image) -> bool:
    """Return whether the engine has exactly this image under its name."""
    try:
        found = client.images.get(image.tags[0])
    except docker.errors.ImageNotFound:
        return False
    # Engines that keep images in containerd's store call an image by its manifest, others by its configuration.
    return found.id in (image.digest, image.config)


def has_tag(client: docker.DockerClient, name: str) -> bool:
    """Return whether the engine has an image of that name."""
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        return False
    return True


def load_image(client: docker.DockerClient, image: Image) -> None:
    """Hand an image to the engine, which gives it its names."""
    read, write = os.pipe()

    def send() -> None:
        # When the engine refuses the image, the reading end is closed: what it said is raised below.
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
    """Remove a container, running or not, if there is one of that name; return whether there was."""
    try:
        client.containers.get(name).remove(force=True)
    except docker.errors.NotFound:
        return False
    except docker.errors.APIError as error:
        # Somebody else is removing it.
        if error.status_code != http.HTTPStatus.CONFLICT:
            raise
    return True


def _explained(error: Exception, place: str) -> ProvisionError:
    text = str(error)
    if "Permission denied" in text or "PermissionError" in text:
        return ProvisionError(
            f"the Docker engine at {place} does not let you in",
            "join its group (sudo usermod -aG docker $USER, then log in anew), or use a rootless engine",
        )
    if any(word in text for word in ("Connection refused", "ConnectionRefused", "No such file", "FileNotFound")):
        return ProvisionError(
            f"no Docker engine answers at {place}",
            "start it (sudo systemctl start docker), or say where it is with DOCKER_HOST",
        )
    if "no space left on device" in text:
        return ProvisionError("the Docker engine's disk is full", "docker system prune frees what nobody uses")
    return ProvisionError(
        f"the Docker engine at {place}: {text.splitlines()[0] if text else type(error).__name__}"
    )

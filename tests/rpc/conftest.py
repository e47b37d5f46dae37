"""Callers of the tests in this folder: straight into the dispatcher, where every transport ends."""

import pytest

from mcp_tasks.testing.client import McpClient
from tests.support.inprocess import rpc_client


@pytest.fixture
def alice(db: None) -> McpClient:
    """Somebody."""
    return rpc_client("alice")


@pytest.fixture
def bob(db: None) -> McpClient:
    """Somebody else."""
    return rpc_client("bob")


@pytest.fixture
def nobody(db: None) -> McpClient:
    """A caller without an identity."""
    return rpc_client()

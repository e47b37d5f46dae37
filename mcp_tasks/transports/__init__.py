"""Bytes to rpc and back."""

"""Filled by test_receiver.py."""

urlpatterns: list[object] = []

"""Measurements on GPUs, kept in results/, and the tables and pictures made of them."""

"""The server of one environment: sessions, and a thin face per protocol."""

"""An OpenEnv package whose actions are MCP tools."""

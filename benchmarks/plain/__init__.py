"""The baseline: the chat flow as an ordinary careful team writes it, without any of this project.

FastAPI and `StreamingResponse`, pydantic, the OpenAI SDK's own typed stream, Jinja2, SQLite behind
a thread, a lock in the process, a tool loop. It puts the same bytes on the wire as the stacks do
on the strict wire (the bench checks that), and has no fallback, no shadow and no records.
"""

"""What both stacks, the router and the comparison share: values and protocols, pure.

`flow` is what a flow is, `flows` are the built-in ones; `ports` and `operations` are how a stack
reaches the world, `model`, `stores` and `human` what it sends and receives there; `wire` reads
events off a wire; `records` are what captures hold; `qa_header` is how a client asks for a
stack. Imported by module.
"""

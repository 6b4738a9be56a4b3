"""Makes shop pages whose truth is known by construction, with much on them that is easily taken for the price."""

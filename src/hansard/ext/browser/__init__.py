"""Browser actions: pages whose actions are steps, replays of actions, demonstrations."""

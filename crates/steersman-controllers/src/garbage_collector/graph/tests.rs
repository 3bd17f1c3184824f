//! The graph, told of events.

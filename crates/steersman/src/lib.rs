//! The controller library: reflectors, informers, listers, work queues, controllers.

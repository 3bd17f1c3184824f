package main

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	queueRounds    = 2_000_000
	queueKeys      = 1_000
	queueProducers = 8
)

// measureQueue runs the same steps as the bench of the library's own work queue.
func measureQueue() map[string]float64 {
	keys := make([]string, queueKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("default/object-%d", i)
	}
	newQueue := func() workqueue.TypedRateLimitingInterface[string] {
		return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	}

	queue := newQueue()
	started := time.Now()
	for round := range queueRounds {
		queue.Add(keys[round%queueKeys])
		key, _ := queue.Get()
		queue.Done(key)
	}
	alone := queueRounds / time.Since(started).Seconds()
	queue.ShutDown()

	queue = newQueue()
	started = time.Now()
	var producers, consumer sync.WaitGroup
	for producer := range queueProducers {
		producers.Go(func() {
			for round := range queueRounds / queueProducers {
				queue.Add(keys[(round*queueProducers+producer)%queueKeys])
			}
		})
	}
	consumer.Go(func() {
		for {
			key, shutdown := queue.Get()
			if shutdown {
				return
			}
			queue.Done(key)
		}
	})
	producers.Wait()
	queue.ShutDownWithDrain()
	consumer.Wait()
	beside := queueRounds / time.Since(started).Seconds()
	return map[string]float64{"queue_cycles_per_s": alone, "queue_adds_per_s": beside}
}

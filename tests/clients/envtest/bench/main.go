// Command bench starts and stops environments of envtest, so many times, so many at once, and prints the milliseconds that each
// start and stop took together.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func main() {
	if len(os.Args) != 3 {
		fail("want two numbers: how many times, how many at once")
	}
	rounds, atOnce := number(os.Args[1]), number(os.Args[2])
	for range rounds {
		var all sync.WaitGroup
		took := make([]time.Duration, atOnce)
		for i := range atOnce {
			all.Go(func() { took[i] = once() })
		}
		all.Wait()
		for _, one := range took {
			fmt.Println(float64(one.Microseconds()) / 1000)
		}
	}
}

func once() time.Duration {
	began := time.Now()
	environment := &envtest.Environment{}
	if _, err := environment.Start(); err != nil {
		fail("the environment does not start:", err)
	}
	if err := environment.Stop(); err != nil {
		fail("the environment does not stop:", err)
	}
	return time.Since(began)
}

func number(text string) int {
	number, err := strconv.Atoi(text)
	if err != nil {
		fail(err)
	}
	return number
}

func fail(why ...any) {
	fmt.Fprintln(os.Stderr, why...)
	os.Exit(1)
}

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

// Resources of this process from the kernel, and the controls of the server.

// reference names the state of an object.
type reference struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Version   uint64 `json:"version"`
}

// facts is the state to wait for.
type facts struct {
	Objects       int       `json:"objects"`
	Updates       uint64    `json:"updates"`
	ListedVersion uint64    `json:"listed_version"`
	LastChanged   reference `json:"last_changed"`
	LastReplaced  reference `json:"last_replaced"`
	LastUpdated   reference `json:"last_updated"`
}

// control requests what from the server and returns when it has done its part.
func control(server, what string) (facts, error) {
	var answer facts
	response, err := http.Post("http://"+server+"/control/"+what, "", nil)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	return answer, json.NewDecoder(response.Body).Decode(&answer)
}

// statusMB reads a line of /proc/self/status, in MB of 10^6 bytes.
func statusMB(name string) (float64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok {
			var kilobytes float64
			_, err := fmt.Sscanf(strings.TrimSpace(rest), "%f kB", &kilobytes)
			return kilobytes * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/self/status", name)
}

// cpuSeconds is the processor time of all threads since the start.
func cpuSeconds() (float64, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds(), nil
}

// resetPeak resets VmHWM to the current resident memory, see proc_pid_clear_refs(5).
func resetPeak() error {
	return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}

package task

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is the meaning of a size name.
type Size struct {
	MilliCPU int // thousandths of a processor
	MemoryMB int // MiB
	MaxPIDs  int // processes and threads
}

// Limit is one of the limits of a size.
type Limit string

// The limits of a size. Not every machine can keep them.
const (
	LimitCPU       Limit = "cpu"
	LimitMemory    Limit = "memory"
	LimitProcesses Limit = "processes"
)

// Unkept says in a sentence which limits of the size the machine of a task does not keep, and why. It is empty if
// there are none.
func (s Size) Unkept(limits []Limit, why string) string {
	var parts []string
	for _, l := range limits {
		switch l {
		case LimitCPU:
			parts = append(parts, fmt.Sprintf("cpu (%g vCPU)", float64(s.MilliCPU)/1000))
		case LimitMemory:
			parts = append(parts, fmt.Sprintf("memory (%d MiB)", s.MemoryMB))
		case LimitProcesses:
			parts = append(parts, fmt.Sprintf("processes (%d)", s.MaxPIDs))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "this machine does not enforce these limits of the size: " + strings.Join(parts, ", ") + "; " + why
}

// CPUUnits is the processor share as ECS counts it: 1024 units are one vCPU.
func (s Size) CPUUnits() int { return s.MilliCPU * 1024 / 1000 }

// String is the explicit form of the size, such as 1024/2048.
func (s Size) String() string { return fmt.Sprintf("%d/%d", s.CPUUnits(), s.MemoryMB) }

// SizeOf returns the meaning of a size: small (also for an empty name), medium, large, xlarge, or
// CPU/MEMORY, in units of 1/1024 vCPU and in MiB, such as 2048/8192. An explicit pair must be one that
// Fargate has, wherever the task runs, so that a workspace may move to another pool. The error is a
// sentence that says why.
func SizeOf(name string) (Size, error) {
	switch name {
	case "", "small":
		return Size{1000, 2048, 1024}, nil
	case "medium":
		return Size{2000, 4096, 2048}, nil
	case "large":
		return Size{4000, 8192, 4096}, nil
	case "xlarge":
		return Size{8000, 16384, 8192}, nil
	}
	left, right, ok := strings.Cut(name, "/")
	if !ok {
		return Size{}, fmt.Errorf("size %q is not small, medium, large, xlarge or CPU/MEMORY such as 2048/8192", cut(name))
	}
	cpu, errCPU := number(left)
	memory, errMemory := number(right)
	if errCPU != nil || errMemory != nil {
		return Size{}, fmt.Errorf("size %q is not CPU/MEMORY, two whole numbers such as 2048/8192", cut(name))
	}
	if err := checkFargate(cpu, memory); err != nil {
		return Size{}, err
	}
	return Size{MilliCPU: cpu * 1000 / 1024, MemoryMB: memory, MaxPIDs: max(1024, cpu)}, nil
}

func cut(s string) string { return s[:min(len(s), 40)] }

// number reads a number of a size: only digits, no sign, and too few digits to overflow.
func number(s string) (int, error) {
	if s == "" || len(s) > 7 || strings.Trim(s, "0123456789") != "" || s[0] == '0' {
		return 0, strconv.ErrSyntax
	}
	return strconv.Atoi(s)
}

// fargate holds the pairs that Fargate has for Linux tasks: per number of CPU units either a list of
// memory values or a range with its step, in MiB. (ECS developer guide, "Task definition parameters
// for Fargate: task size"; 32 vCPU came in 2026 with three values.)
var fargate = []struct {
	cpu            int
	from, to, step int
	list           []int
}{
	{cpu: 256, list: []int{512, 1024, 2048}},
	{cpu: 512, from: 1024, to: 4096, step: 1024},
	{cpu: 1024, from: 2048, to: 8192, step: 1024},
	{cpu: 2048, from: 4096, to: 16384, step: 1024},
	{cpu: 4096, from: 8192, to: 30720, step: 1024},
	{cpu: 8192, from: 16384, to: 61440, step: 4096},
	{cpu: 16384, from: 32768, to: 122880, step: 8192},
	{cpu: 32768, list: []int{61440, 122880, 249856}},
}

func checkFargate(cpu, memory int) error {
	var known []string
	for _, f := range fargate {
		known = append(known, strconv.Itoa(f.cpu))
		if f.cpu != cpu {
			continue
		}
		if f.list == nil {
			if memory >= f.from && memory <= f.to && (memory-f.from)%f.step == 0 {
				return nil
			}
			return fmt.Errorf("size %d/%d does not exist: with %d CPU units, memory is %d to %d MiB in steps of %d", cpu, memory, cpu, f.from, f.to, f.step)
		}
		var values []string
		for _, m := range f.list {
			if m == memory {
				return nil
			}
			values = append(values, strconv.Itoa(m))
		}
		return fmt.Errorf("size %d/%d does not exist: with %d CPU units, memory is one of %s MiB", cpu, memory, cpu, strings.Join(values, ", "))
	}
	return fmt.Errorf("size %d/%d does not exist: CPU units are one of %s", cpu, memory, strings.Join(known, ", "))
}

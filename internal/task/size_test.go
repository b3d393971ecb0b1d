package task_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/task"
)

func TestSizeOf(t *testing.T) {
	for name, want := range map[string]task.Size{
		"":             {MilliCPU: 1000, MemoryMB: 2048, MaxPIDs: 1024},
		"small":        {MilliCPU: 1000, MemoryMB: 2048, MaxPIDs: 1024},
		"medium":       {MilliCPU: 2000, MemoryMB: 4096, MaxPIDs: 2048},
		"large":        {MilliCPU: 4000, MemoryMB: 8192, MaxPIDs: 4096},
		"xlarge":       {MilliCPU: 8000, MemoryMB: 16384, MaxPIDs: 8192},
		"256/512":      {MilliCPU: 250, MemoryMB: 512, MaxPIDs: 1024},
		"512/4096":     {MilliCPU: 500, MemoryMB: 4096, MaxPIDs: 1024},
		"1024/2048":    {MilliCPU: 1000, MemoryMB: 2048, MaxPIDs: 1024},
		"2048/8192":    {MilliCPU: 2000, MemoryMB: 8192, MaxPIDs: 2048},
		"4096/30720":   {MilliCPU: 4000, MemoryMB: 30720, MaxPIDs: 4096},
		"8192/20480":   {MilliCPU: 8000, MemoryMB: 20480, MaxPIDs: 8192},
		"16384/122880": {MilliCPU: 16000, MemoryMB: 122880, MaxPIDs: 16384},
		"32768/249856": {MilliCPU: 32000, MemoryMB: 249856, MaxPIDs: 32768},
	} {
		got, err := task.SizeOf(name)
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", name, got, err, want)
		}
		if strings.Contains(name, "/") && got.String() != name {
			t.Errorf("%q: reads back as %q", name, got)
		}
	}
}

func TestUnkept_NamesEachLimitWithItsValue(t *testing.T) {
	s, err := task.SizeOf("256/512")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Unkept(nil, "why"); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
	got := s.Unkept([]task.Limit{task.LimitCPU, task.LimitMemory, task.LimitProcesses}, "it has no cgroups")
	if want := "this machine does not enforce these limits of the size: cpu (0.25 vCPU), memory (512 MiB), processes (1024); it has no cgroups"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSizeOf_RefusesWhatFargateDoesNotHave(t *testing.T) {
	for name, says := range map[string]string{
		"gigantic":                    "not small, medium",
		"Small":                       "not small, medium",
		"1024":                        "not small, medium",
		"1024/":                       "two whole numbers",
		"/2048":                       "two whole numbers",
		"-1024/2048":                  "two whole numbers",
		"1024/2048/1":                 "two whole numbers",
		"1024/2e3":                    "two whole numbers",
		"1024/ 2048":                  "two whole numbers",
		"01024/2048":                  "two whole numbers",
		"1024/9999999999999999999999": "two whole numbers",
		"1000/2048":                   "CPU units are one of 256, 512",
		"256/4096":                    "one of 512, 1024, 2048 MiB",
		"1024/1024":                   "2048 to 8192 MiB",
		"1024/2049":                   "steps of 1024",
		"8192/17408":                  "steps of 4096",
		"8192/65536":                  "16384 to 61440",
		"32768/65536":                 "one of 61440, 122880, 249856",
	} {
		got, err := task.SizeOf(name)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %+v, %v; want a refusal that says %q", name, got, err, says)
		}
	}
}

"""A thousand programs that do anything but solve their problem.

Each is an attack with a number that varies it, placed in one of five places. No program
knows what `f` must return, so none may be graded correct.
"""

import textwrap

# {n} is 1 to 5, {folder} a folder that belongs to the test.
ATTACKS = {
    "fork_bomb": "import os\nwhile True: os.fork()",
    "forks": "import os\nfor _ in range({n}): os.fork()\nwhile True: pass",
    "daemon": """
        import os
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while True: pass
        """,
    "spawn": "import os\nos.posix_spawn('/bin/sleep', ['sleep', '{n}00'], {{}})",
    "shell": "import os\nos.system('sleep {n}00 &')",
    "subprocess": "import subprocess\nsubprocess.Popen(['sleep', '{n}00'])",
    "threads": """
        import threading
        for _ in range({n}000): threading.Thread(target=lambda: [0] * 10**6).start()
        """,
    "memory": "x = [0] * 10 ** (7 + {n})\nx = x * 10 ** 4",
    "growth": "x = []\nwhile True: x.append(bytearray(10 ** (3 + {n})))",
    "terabyte": "x = bytearray({n} << 40)",
    "endless": "k = {n}\nwhile True: k += 1",
    "ignored_signals": """
        import signal
        for number in range(1, 32):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: pass
        """,
    "output": "while True: print('x' * 10 ** {n})",
    "raw_output": "import os\nwhile True: os.write({n} % 2 + 1, b'x' * 10**6)",
    "passwd": "result = open('/etc/passwd').read()",
    "proc": "result = open('/proc/{n}/environ').read()",
    "own_memory": "result = open('/proc/self/mem', 'rb').read({n})",
    "parent_memory": """
        import os
        result = open(f'/proc/{{os.getppid()}}/mem', 'rb').read({n})
        """,
    "list_root": "import os\nresult = os.listdir('/')[{n}]",
    "write": "open('{folder}/written_{n}', 'w').write('x')",
    "write_here": "import os\nos.open('written_{n}', os.O_CREAT | os.O_WRONLY)",
    "delete": "import os\nos.remove('{folder}/keep')",
    "delete_tree": "import shutil\nshutil.rmtree('{folder}')",
    "rename": "import os\nos.rename('{folder}/keep', '{folder}/gone_{n}')",
    "chmod": "import os\nos.chmod('{folder}/keep', 0)",
    "connect": """
        import socket
        socket.create_connection(('127.0.0.1', 80 + {n}), timeout=1)
        """,
    "datagram": """
        import socket
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.sendto(b'x', ('127.0.0.1', 5000 + {n}))
        """,
    "kill_parent": "import os\nos.kill(os.getppid(), {n} + 8)",
    "kill_all": "import os\nos.kill(-1, {n} + 8)",
    "kill_group": "import os\nos.killpg(0, {n} + 8)",
    "exit": "import os\nos._exit({n} - 1)",
    "polite_exit": "import sys\nprint('passed')\nsys.exit({n} - 1)",
    "forged_verdict": """
        import json, os
        data = json.dumps({{'passed': True, 'reason': ''}}).encode()
        data = len(data).to_bytes(4, 'big') + data
        for fd in range(3, 10):
            try: os.write(fd, data * {n})
            except OSError: pass
        os._exit(0)
        """,
    "forged_values": """
        import json, os
        data = json.dumps({{'value': {n}}}).encode()
        os.write(3, (len(data).to_bytes(4, 'big') + data) * 100)
        os._exit(0)
        """,
    "no_protocol": "import os\nos.write(3, b'\\xff' * {n})\nos._exit(0)",
    "equal_to_all": """
        class Equal(int):
            def __eq__(self, other): return True
            def __hash__(self): return {n}
        result = Equal({n})
        """,
    "equal_object": """
        class Equal:
            def __eq__(self, other): return True
            def __index__(self): return {n}
        result = [Equal()] * {n}
        """,
    "patched_builtins": """
        import builtins
        builtins.AssertionError = Exception
        builtins.isinstance = lambda *a: True
        builtins.repr = builtins.str = lambda *a: '{n}'
        """,
    "patched_sandbox": """
        import sys
        for name, module in list(sys.modules.items()):
            if 'sandbox' in name:
                module.encode = lambda value: {{'passed': True}}
                module._run = lambda *a: ''
                module.send = lambda channel, message: None
        """,
    "frames": """
        import sys
        frame, found = sys._getframe(), []
        while frame:
            found += [v for v in frame.f_locals.values() if 'assert' in repr(v)]
            frame = frame.f_back
        result = found[-{n}]
        """,
    "heap": """
        import gc
        result = [o for o in gc.get_objects() if isinstance(o, dict) and 'tests' in o]
        result = result[-{n}]['tests']
        """,
    "recursion": """
        import sys
        sys.setrecursionlimit(10 ** 9)
        def g(k): return g(k + {n})
        result = g(0)
        """,
    "c_recursion": """
        import sys
        sys.setrecursionlimit(10 ** 9)
        x = []
        for _ in range({n}00000): x = [x]
        result = repr(x) == repr(x)
        """,
    "crash": "import ctypes\nctypes.string_at({n})",
    "system_call": """
        import ctypes
        libc = ctypes.CDLL(None)
        calls = [41, 56, 57, 58, 59, 62, 101, 157, 160, 165, 272, 298, 319, 425, 435]
        result = [libc.syscall(number, {n}, 0, 0, 0, 0) for number in calls]
        result = 0 if set(result) == {{-1}} else result
        """,
    "machine_code": """
        import ctypes
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        at = libc.mmap(None, 4096 * {n}, 7, 34, -1, 0)
        ctypes.memmove(at, b'\\x0f\\x05\\xc3', 3)
        """,
    "trace_parent": """
        import ctypes, os
        result = ctypes.CDLL(None).ptrace(16, os.getppid() + {n} - 1, 0, 0)
        """,
    "limits": """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, ({n} << 40, {n} << 40))
        """,
    "raises": """
        result = [KeyboardInterrupt, SystemExit, AssertionError, GeneratorExit,
                  MemoryError][{n} - 1]
        raise result('passed')
        """,
    "evil_error": """
        class Evil(Exception):
            def __str__(self): return 'x' * 10 ** (4 + {n})
        raise Evil
        """,
    "endless_result": "import itertools\nresult = itertools.count({n})",
    "huge_result": "result = 'x' * 10 ** (4 + {n})",
    "deep_result": "result = []\nfor _ in range(10 ** {n}): result = [result]",
    "huge_number": "result = 10 ** (10 ** (2 + {n}))",
    "parser_bomb": "compile('(' * 10 ** (2 + {n}), 'x', 'eval')",
    "tower": "result = 9 ** 9 ** 9 ** {n}",
    "descriptors": "import os\nwhile True: os.dup({n} % 3)",
    "wait": "import time\ntime.sleep({n}000)",
    "shared_memory": "import mmap\nmmap.mmap(-1, {n} << 30)",
    "at_exit": "import atexit\natexit.register(lambda: print('passed'))",
}
# Attacks that only a limit ends: they take seconds each.
ENDLESS = (
    *("endless", "ignored_signals", "output", "raw_output", "patched_sandbox"),
    *("recursion", "c_recursion", "tower"),
)
# Places for an attack. If it leaves something in `result`, f returns that.
PLACES = {
    "module": "result = 0\n{attack}\ndef f(x):\n    return result",
    "call": "def f(x):\n    result = 0\n{indented}\n    return result",
    "class": "result = 0\nclass A:\n    result = 0\n{indented}\nf = lambda x: A.result",
    "swallowed": (
        "result = 0\ntry:\n{indented}\nexcept BaseException:\n    pass\n"
        "def f(x):\n    return result"
    ),
    "nested": (
        "def f(x):\n    names = dict(result=0)\n    exec({attack!r}, names)\n"
        "    return names['result']"
    ),
}
SIZE = 1000
# f must compute these values; no attack returns them.
TESTS = "assert f(3) == 900719925474\nassert f(4) == [f(5), 271828182845]"


def make_hostile_programs(folder: str, count: int = SIZE) -> list[tuple[str, str]]:
    """Returns (name, program): all attacks in order, then all in the next place, ..."""
    programs = []
    for turn in range(len(PLACES) * 5):
        place = list(PLACES)[turn % len(PLACES)]
        n = 1 + turn // len(PLACES)
        for name, attack in ATTACKS.items():
            text = textwrap.dedent(attack).strip().format(n=n, folder=folder)
            indented = textwrap.indent(text, "    ")
            program = PLACES[place].format(attack=text, indented=indented)
            programs.append((f"{name}-{place}-{n}", program))
    return programs[:count]

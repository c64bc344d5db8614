import torch, generated as g, time, math
import torch.nn.functional as F
torch.manual_seed(0)
dt={"fp16":torch.float16,"bf16":torch.bfloat16,"fp32":torch.float32,"fp64":torch.float64,"tf32":torch.float32,"tf32x3":torch.float32}
bad=0
def err(o,r,name):
    global bad
    r=r.double(); o=o.double()
    if r.numel()==0: return
    e=((o-r).norm()/r.norm().clamp_min(1e-30)).item()
    tol={"fp16":1e-3,"bf16":6e-3,"fp32":2e-6,"fp64":1e-14,"tf32":2e-3,"tf32x3":2e-6}[name.split("_")[2]]
    if not e<tol: bad+=1; print("BAD",name,tuple(o.shape),e)
for name in [n for n in g.__all__ if n.startswith("gemm_") and len(n.split("_"))==3]:
    _,lay,d=name.split("_"); k=getattr(g,name); D=dt[d]
    for M,N,K in [(1,1,1),(17,33,65),(128,256,64),(129,257,191),(1000,300,777),(64,64,4096),(5,7,0),(513,1025,96)]:
        a=torch.randn(M,K,device="cuda",dtype=torch.float64).to(D); b=torch.randn(K,N,device="cuda",dtype=torch.float64).to(D)
        A=a.t().contiguous() if lay[0]=="t" else a; B=b.t().contiguous() if lay[1]=="t" else b
        err(k(A,B),a.double()@b.double(),name)
        # transposed views / padded / odd offsets
        A2=A.t().contiguous().t(); B2=torch.empty(B.shape[0],B.shape[1]+3,device="cuda",dtype=D)[:,1:1+B.shape[1]]; B2.copy_(B)
        err(k(A2,B2),a.double()@b.double(),name)
print("gemm done, bad",bad)
x=torch.randn(3,5,64,device="cuda").bfloat16().transpose(0,1); w=torch.randn(100,64,device="cuda").bfloat16(); bias=torch.randn(100,device="cuda").bfloat16(); res=torch.randn(5,3,100,device="cuda").bfloat16()
for nm,o,r in [("gelu",g.linear_bias_gelu(x,w,bias),F.gelu(F.linear(x.double(),w.double(),bias.double()))),("gelut",g.linear_bias_gelu_tanh(x,w,bias),F.gelu(F.linear(x.double(),w.double(),bias.double()),approximate="tanh")),("silures",g.linear_bias_silu_residual(x,w,bias,res),F.silu(F.linear(x.double(),w.double(),bias.double()))+res.double())]:
    print(nm,((o.double()-r).norm()/r.norm()).item())
o,p=g.linear_gelu_aux(x,w,bias); print("aux",((p.double()-F.linear(x.double(),w.double(),bias.double())).norm()).item())
# big
big=torch.empty(2**31+2**26,device="cuda",dtype=torch.float16)
M,K=4,2; s=2**30+2**23
a=big.as_strided((3,64),(s,1)); a.copy_(torch.randn(3,64,device="cuda").half()); b=torch.randn(64,32,device="cuda").half()
r=a.double()@b.double(); e=((g.gemm_nn_fp16(a,b).double()-r).norm()/r.norm()).item(); print("big",e)
# graph
a=torch.randn(512,512,device="cuda").half(); b=torch.randn(512,512,device="cuda").half(); out=torch.empty_like(a)
g.gemm_nn_fp16(a,b,out=out); gr=torch.cuda.CUDAGraph()
with torch.cuda.graph(gr): c=g.gemm_nn_fp16(a,b)
a.copy_(torch.randn_like(a)); gr.replay(); torch.cuda.synchronize(); print("graph",((c.double()-a.double()@b.double()).norm()/c.double().norm()).item())
# compile counts over shapes
import generated.gemm_nt_bf16 as mod
K_=mod.gemm_nt_bf16_kernel if hasattr(mod,"gemm_nt_bf16_kernel") else __import__("sys").modules["generated.gemm_nt_bf16"].gemm_nt_bf16_kernel
before=len(K_.device_caches[0][0])
import random; random.seed(0)
for _ in range(60):
    M,N,K=[random.choice([1,3,16,31,64,100,128,200,333]) for _ in "mnk"]
    g.gemm_nt_bf16(torch.randn(M,K,device="cuda").bfloat16(),torch.randn(N,K,device="cuda").bfloat16())
print("compiled kernels",before,len(K_.device_caches[0][0]))
# cpu time
a=torch.randn(16,16,device="cuda").bfloat16()
for f,n in ((lambda: g.gemm_nt_bf16(a,a),"ours"),(lambda: torch.mm(a,a),"mm"),(lambda: g.linear_bf16(a,a),"linear")):
    for _ in range(50): f()
    torch.cuda.synchronize(); t=time.perf_counter()
    for _ in range(2000): f()
    t=time.perf_counter()-t; torch.cuda.synchronize(); print(n,t/2000*1e6,"us")

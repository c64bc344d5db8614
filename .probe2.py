import sys, torch, importlib, itertools, statistics, triton
import generated as g
sys.path.insert(0,"."); from benchmarks.seeds import race
from generated._support import Tile
flush=torch.empty(64*2**20,dtype=torch.int32,device="cuda")
DT={"fp16":torch.float16,"bf16":torch.bfloat16,"fp32":torch.float32,"tf32":torch.float32,"fp64":torch.float64,"tf32x3":torch.float32}
def go(name, tiles, size=4096):
    _,lay,d=name.split("_"); mod=sys.modules["generated."+name]; k=getattr(mod,name)
    a=torch.randn(size,size,device="cuda").to(DT[d]); b=torch.randn(size,size,device="cuda").to(DT[d]); out=torch.empty_like(a)
    A=a.t() if lay[0]=="t" else a; B=b.t() if lay[1]=="t" else b
    torch.backends.cuda.matmul.allow_tf32 = d=="tf32"
    res=[]
    old=mod.TILES
    for t in tiles:
        mod.TILES=(Tile(sm=80,m=t[0],n=t[1],k=t[2],group_m=8,stages=t[3],warps=t[4]),)
        try:
            race(lambda:k(a,b,out=out),lambda:torch.mm(A,B,out=out),3,flush)
            x,y=race(lambda:k(a,b,out=out),lambda:torch.mm(A,B,out=out),12,flush)
            res.append((round(statistics.median(y)/statistics.median(x),3),t))
        except Exception as e: res.append((0,t,type(e).__name__))
    mod.TILES=old
    print(name,sorted(res,reverse=True)[:6],"| default order first:",res[0],flush=True)
H=[(128,256,64,3,8),(128,128,64,4,8),(128,128,64,3,4),(128,256,64,4,8),(256,128,64,3,8),(64,256,64,4,4),(128,128,32,4,4),(128,256,32,4,8),(64,128,64,4,4),(128,128,128,2,8),(128,256,64,2,8)]
for n in ("gemm_nn_fp16","gemm_nt_bf16","gemm_tn_fp16","gemm_tt_bf16"): go(n,H)
F=[(128,128,32,3,8),(64,64,32,3,8),(64,128,32,5,4),(128,64,32,5,4),(128,128,16,4,8),(128,128,16,3,4),(64,128,16,4,4),(128,128,8,3,8)][:7]
for n in ("gemm_nn_fp32","gemm_nt_fp32"): go(n,F)
T=[(128,256,32,3,8),(128,128,32,4,8),(128,128,32,4,4),(64,128,32,4,4),(128,128,64,3,8)]
go("gemm_nn_tf32",T); go("gemm_nn_tf32x3",[(128,128,32,3,8),(64,64,32,4,4),(64,128,32,3,4),(128,64,32,3,4),(128,128,16,4,8)])
go("gemm_nt_fp64",[(64,64,16,4,8),(32,32,16,5,4),(64,64,16,6,4),(64,128,16,3,8),(128,64,16,3,8)])

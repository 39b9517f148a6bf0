import{b as r}from"./chunk-MVFS4EUS.js";import{m18 as e}from"./core-CZHTESZD.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
